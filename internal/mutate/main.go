// Mutate checks the tests: it makes small faults in a copy of the library, one at a time, and says which of them the tests
// catch. It fails when one survives, when a fault cannot be made because the code has changed, and when the tests fail
// without any fault.
//
//	go run ./internal/mutate              all faults
//	go run ./internal/mutate -only=queue  those whose file or description contains "queue"
//	go run ./internal/mutate -list        none, only see whether they can be made
//
// The faults are in faults.go. Each is a piece of text that must be in its file exactly once, and what takes its place; so
// who changes that piece of the code changes the fault with it. A fault is caught when a test fails, hangs or crashes. One
// that survives wants a test of the behaviour that it breaks.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A fault is a small change that breaks a promise.
type fault struct {
	file string // from the module's root
	what string // what it breaks
	old  string // must be there exactly once
	new  string
	by   []check // tests that may catch it, the quickest first; nil: those of its package, and then of everything above it
}

// A check is a run of tests.
type check struct {
	args    string // of go test
	timeout time.Duration
}

func main() {
	only := flag.String("only", "", "make only the faults whose file or description contains one of these, separated by commas")
	list := flag.Bool("list", false, "only check that all faults can be made, and list them")
	flag.Parse()
	chosen := choose(*only)
	if err := run(chosen, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func choose(only string) (chosen []fault) {
	for _, f := range faults {
		for word := range strings.SplitSeq(only, ",") {
			if strings.Contains(f.file, word) || strings.Contains(f.what, word) {
				chosen = append(chosen, f)
				break
			}
		}
	}
	return chosen
}

func run(chosen []fault, list bool) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyModule(root, dir); err != nil {
		return err
	}
	if list {
		return listAll(dir, chosen)
	}
	if err := checkHealth(dir, chosen); err != nil {
		return err
	}
	return makeAll(dir, chosen)
}

// listAll lists the faults and checks that each can be made.
func listAll(dir string, chosen []fault) error {
	var errs []error
	for _, f := range chosen {
		fmt.Printf("%-24s %s\n", f.file, f.what)
		if _, _, err := f.change(dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", f.file, f.what, err))
		}
	}
	return errors.Join(errs...)
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	root := filepath.Dir(strings.TrimSpace(string(out)))
	if err == nil && root == "." {
		err = errors.New("run it inside the module")
	}
	return root, err
}

// copyModule copies the library without the modules below it.
func copyModule(root, dir string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		to := filepath.Join(dir, rel)
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && rel != "." || d.Name() == ".git" {
				return filepath.SkipDir
			}
			return os.MkdirAll(to, 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
}

// change returns the fault's file without and with it.
func (f fault) change(dir string) (good, bad []byte, err error) {
	good, err = os.ReadFile(filepath.Join(dir, f.file))
	if err != nil {
		return nil, nil, err
	}
	if n := bytes.Count(good, []byte(f.old)); n != 1 {
		return nil, nil, fmt.Errorf("it cannot be made: the text to change is there %d times, must be once:\n\t%s", n, f.old)
	}
	return good, bytes.Replace(good, []byte(f.old), []byte(f.new), 1), nil
}

// checkHealth checks that all tests that will be used pass without a fault.
func checkHealth(dir string, chosen []fault) error {
	done := make(map[string]bool)
	for _, f := range chosen {
		for _, c := range checksOf(f) {
			if done[c.args] {
				continue
			}
			done[c.args] = true
			start := time.Now()
			if failed, out := c.fails(dir); failed {
				return fmt.Errorf("the tests fail without any fault: go test %s\n%s", c.args, out)
			}
			fmt.Printf("healthy in %3.0f s  go test %s\n", time.Since(start).Seconds(), c.args)
		}
	}
	return nil
}

func makeAll(dir string, chosen []fault) error {
	start, caught := time.Now(), 0
	var survived []string
	for _, f := range chosen {
		begun := time.Now()
		by, err := catch(dir, f)
		verdict := "caught by " + by
		switch {
		case err != nil:
			verdict = "BROKEN: " + err.Error()
		case by == "":
			verdict = "SURVIVED"
		default:
			caught++
		}
		if err != nil || by == "" {
			survived = append(survived, f.file+": "+f.what)
		}
		fmt.Printf("%-24s %-75s %s (%.0f s)\n", f.file, f.what, verdict, time.Since(begun).Seconds())
	}
	fmt.Printf("%d of %d faults were caught, in %v\n", caught, len(chosen), time.Since(start).Round(time.Second))
	if survived != nil {
		return fmt.Errorf("not caught:\n\t%s", strings.Join(survived, "\n\t"))
	}
	return nil
}

// catch makes a fault, and returns the tests that have caught it, or "".
func catch(dir string, f fault) (by string, err error) {
	good, bad, err := f.change(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, f.file)
	if err := os.WriteFile(path, bad, 0o644); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, good, 0o644)) }()
	if out, err := command(context.Background(), dir, "build", "./...").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the fault does not compile:\n%s", out)
	}
	for _, c := range checksOf(f) {
		if failed, out := c.fails(dir); failed {
			return c.name() + ": " + culprit(out), nil
		}
	}
	return "", nil
}

// name is the package of the tests.
func (c check) name() string {
	for word := range strings.FieldsSeq(c.args) {
		if strings.HasPrefix(word, ".") {
			return word
		}
	}
	return c.args
}

var failure = regexp.MustCompile(`(?m)^(?:--- FAIL: (\S+)|panic: (test timed out|.*)|.*(DATA RACE).*|fatal error: (.*))`)

// culprit is the first that went wrong in the output of a failed test.
func culprit(out []byte) string {
	m := failure.FindSubmatch(out)
	if m == nil {
		return "it has crashed"
	}
	return string(bytes.Join(m[1:], nil))
}

// fails runs tests and reports whether one fails or hangs.
func (c check) fails(dir string) (failed bool, out []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout+5*time.Minute) // to build them
	defer cancel()
	args := []string{"test", "-short", "-failfast", "-vet=off", "-gcflags=-l", "-count=1", "-timeout=" + c.timeout.String()}
	args = append(args, strings.Fields(c.args)...)
	cmd := command(ctx, dir, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return err != nil, out
}

func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	return cmd
}

// Tests that catch faults.
var (
	buffering   = check{"./buffering", 30 * time.Second}
	racing      = check{"-race ./buffering", 2 * time.Minute}
	foremanOnly = check{"./foreman", 30 * time.Second}
	engine      = check{".", time.Minute}
	limiters    = check{"./ratelimiter", time.Minute}
	limiterKit  = check{"./ratelimiter/limitertest", time.Minute}
	retries     = check{"./retry", 30 * time.Second}
	breakers    = check{"./breaker", 30 * time.Second}
	cases       = check{"./casetest", time.Minute}
	simulator   = check{"./internal/sim -run=RandomEngines|FuzzRun|RealClock|Flat|Limit -sim.fixed=1500", 2 * time.Minute}
	everything  = check{"-race ./...", 5 * time.Minute}
)

func checksOf(f fault) []check {
	if f.by != nil {
		return f.by
	}
	switch pkg, _, inPackage := strings.Cut(f.file, "/"); {
	case !inPackage:
		return []check{engine, simulator, cases}
	case pkg == "buffering":
		return []check{buffering, engine, simulator}
	case pkg == "foreman":
		return []check{foremanOnly, engine, simulator, cases}
	case pkg == "ratelimiter":
		return []check{limiters, limiterKit, simulator}
	case pkg == "retry":
		return []check{retries, engine}
	case pkg == "breaker":
		return []check{breakers, engine, simulator}
	}
	return []check{everything}
}
