package ratelimiter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFieldBugs checks that FIELDBUGS.md has a row for each of the 89 bugs, that the tests it names exist, and that each test
// named after a bug is in its row.
func TestFieldBugs(t *testing.T) {
	page, err := os.ReadFile("FIELDBUGS.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (B\d\d) \|.*\| (.*) \|$`).FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[2]
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
	}
	for n := 1; n <= 89; n++ {
		bug := fmt.Sprintf("B%02d", n)
		if rows[bug] == "" {
			t.Errorf("%s has no row, or nothing in it", bug)
		}
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(rows[bug], -1) {
			if !there[m[1]] {
				t.Errorf("the row of %s names %s, which does not exist", bug, m[1])
			}
		}
		for name := range there {
			if head := regexp.MustCompile(`^Test(B\d\d)+`).FindString(name); strings.Contains(head, bug) &&
				!strings.Contains(rows[bug], "`"+name+"`") {
				t.Errorf("the row of %s does not name %s", bug, name)
			}
		}
	}
}
