// Command bench runs the same work on Penstock, on what a careful person would write by hand for it, and on other
// libraries, in one process and interleaved, and reports medians and ratios.
//
//	go run ./bench            # everything; writes bench/RESULTS.md and bench/results.svg
//	go run ./bench -short     # less of everything, in under a minute; only prints
//	go run ./bench -run '^batch/no-op/8/(Penstock|by hand)' -cpuprofile cpu.prof
//
// The output of every contender is checked, and a wrong one fails the command. See README.md beside this file.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type settings struct {
	short   bool
	match   *regexp.Regexp
	rounds  int
	out     string
	profile string
	list    bool
}

// String is how a report says what it is of.
func (s settings) String() string {
	text := ""
	if s.short {
		text += " -short"
	}
	if s.match.String() != "" {
		text += fmt.Sprintf(" -run '%s'", s.match)
	}
	if s.rounds > 0 {
		text += fmt.Sprintf(" -rounds %d", s.rounds)
	}
	return text
}

func parse(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&s.short, "short", false, "less of everything, in under a minute")
	match := flags.String("run", "", "only what matches this regular `expression`: the name of a group, a slash, the contender")
	flags.IntVar(&s.rounds, "rounds", 0, "how many `rounds` each group is played (default 11, or 5 with -short)")
	flags.StringVar(&s.out, "out", "", "the `directory` for RESULTS.md and results.svg (default bench; with -short or -run: none)")
	flags.StringVar(&s.profile, "cpuprofile", "", "write a CPU profile to this `file`")
	flags.BoolVar(&s.list, "list", false, "list what there is to run")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 || s.rounds < 0 {
		return s, fmt.Errorf("unexpected arguments %q, or a negative number of rounds", flags.Args())
	}
	if s.match, err = regexp.Compile(*match); err != nil {
		return s, err
	}
	if s.out == "" && !s.short && *match == "" {
		s.out = "bench"
	}
	return s, nil
}

func run(args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := checkDirectory(s.out); err != nil { // before the minutes of work
		return err
	}
	size := full()
	if s.short {
		size = short()
	}
	if s.rounds > 0 {
		size.rounds = s.rounds
	}
	selected := choose(groups(size), s.match)
	if len(selected) == 0 {
		return fmt.Errorf("nothing matches -run %q; -list shows what there is", s.match)
	}
	if s.list {
		list(stdout, selected)
		return nil
	}
	stop, err := profile(s.profile)
	if err != nil {
		return err
	}
	defer stop()
	return report(s, size, selected, stdout, stderr)
}

// report measures the groups one after the other and writes each down when it is done.
func report(s settings, size sizes, selected []*group, stdout, stderr io.Writer) error {
	var file bytes.Buffer
	w := io.MultiWriter(stdout, &file)
	writeHead(w, size.rounds, s.String())
	start := time.Now()
	rng := rand.New(rand.NewPCG(1, uint64(start.UnixNano())))
	var all results
	for _, g := range selected {
		fmt.Fprintf(stderr, "%4.0f s  %s\n", time.Since(start).Seconds(), g.name)
		r, err := measure(g, size, rng)
		if err != nil {
			return err
		}
		if len(all) == 0 || kind(all[len(all)-1].name) != kind(g.name) {
			fmt.Fprintf(w, "\n## %s\n", kinds(kind(g.name)))
		}
		r.write(w)
		all = append(all, r)
	}
	writeTargets(w, all)
	fmt.Fprintf(stderr, "%4.0f s  done\n", time.Since(start).Seconds())
	if s.out == "" {
		return nil
	}
	return save(s.out, file.Bytes(), all)
}

func save(dir string, text []byte, all results) error {
	if err := os.WriteFile(filepath.Join(dir, "RESULTS.md"), text, 0o644); err != nil {
		return err
	}
	svg, err := chart(all)
	if err != nil || svg == nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "results.svg"), svg, 0o644)
}

func checkDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%q is not a directory: run this from the root of the repository, or set -out", dir)
	}
	return nil
}

// profile starts a CPU profile if one is wanted.
func profile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// choose keeps the contenders that match, and groups that have any.
func choose(all []*group, match *regexp.Regexp) []*group {
	var selected []*group
	for _, g := range all {
		var kept []contender
		for _, c := range g.contenders {
			if match.MatchString(g.name + "/" + c.name) {
				kept = append(kept, c)
			}
		}
		if g.contenders = kept; len(kept) > 0 {
			selected = append(selected, g)
		}
	}
	return selected
}

func list(w io.Writer, all []*group) {
	for _, g := range all {
		for _, c := range g.contenders {
			fmt.Fprintf(w, "%s/%s\n", g.name, c.name)
		}
	}
}

// kind is the first part of a group's name, which says what sort of work it is.
func kind(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

// kinds are the headings of the report.
func kinds(kind string) string {
	return map[string]string{
		"batch": "Ordered batch", "stream": "Stream in order of completion", "ordered": "Stream in input order",
		"slices": "Many items per hand-over", "options": "What options cost", "timeout": "Attempt timeouts",
		"memory": "Memory", "items": "More and more items", "workers": "More and more workers", "limiter": "Limiters",
		"latency": "A lone item", "retry": "Retries",
	}[kind]
}

// sizes say how much of everything there is.
type sizes struct {
	rounds  int
	enough  time.Duration // what a turn takes at least, by repetition
	items   int           // of handlers that do nothing
	busy    int           // of handlers that take a microsecond
	naps    int           // naps of 1 ms that each worker takes
	held    int           // items whose memory is measured
	most    int           // of the longest stream
	repeat  int           // how many items shorter streams add up to
	runs    int           // of 10 items each
	trips   int           // of a lone item
	waiting time.Duration // for grants of a limiter
}

func full() sizes {
	return sizes{
		rounds: 11, enough: 50 * time.Millisecond, items: 200_000, busy: 100_000, naps: 100, held: 200_000,
		most: 10_000_000, repeat: 100_000, runs: 5_000, trips: 20_000, waiting: 500 * time.Millisecond,
	}
}

func short() sizes {
	return sizes{
		rounds: 5, enough: 10 * time.Millisecond, items: 20_000, busy: 8_000, naps: 10, held: 50_000,
		most: 1_000_000, repeat: 100_000, runs: 500, trips: 4_000, waiting: 50 * time.Millisecond,
	}
}

// groups is everything there is to measure.
func groups(s sizes) []*group {
	var all []*group
	for _, some := range [][]*group{
		poolGroups(s), optionGroups(s), memoryGroups(s), scaleGroups(s), limiterGroups(s), latencyGroups(s), retryGroups(s),
	} {
		all = append(all, some...)
	}
	return all
}
