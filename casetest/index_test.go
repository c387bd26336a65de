package casetest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestIndex checks that README.md names every test of this package, and no test that is not there.
func TestIndex(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = true
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{"TestIndex": true, "TestMain": true}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
			if !listed[m[1]] && m[1] != "TestIndex" {
				t.Errorf("%s in %s is not in README.md", m[1], file.Name())
			}
		}
	}
	for name := range listed {
		if !there[name] {
			t.Errorf("README.md names %s, which does not exist", name)
		}
	}
}
