package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// ants starts two goroutines for a default pool when it is imported. They are there before the first test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// tiny is as little as every contender can be run with.
func tiny() sizes {
	return sizes{
		rounds: 1, items: 300, busy: 200, naps: 2, held: 500, most: 10_000, repeat: 1_000, runs: 5, trips: 50,
		waiting: 5 * time.Millisecond,
	}
}

// Every contender does its work once, and the output is right.
func TestContenders(t *testing.T) {
	for _, g := range groups(tiny()) {
		t.Run(g.name, func(t *testing.T) {
			r, err := measure(g, tiny(), rand.New(rand.NewPCG(1, 2)))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range g.contenders {
				if v := r.median(c.name, value); v <= 0 && g.unit.time {
					t.Errorf("%s took %v", c.name, v)
				}
			}
		})
	}
}

// A wrong output fails, whatever is wrong about it.
func TestChecks(t *testing.T) {
	items := numbers(3)
	for _, test := range []struct {
		name              string
		stream            []int
		ordered, anyOrder bool
	}{
		{"right", []int{1, 2, 3}, true, true},
		{"another order", []int{1, 3, 2}, false, true},
		{"one missing", []int{1, 2}, false, false},
		{"one twice", []int{1, 2, 2}, false, false},
		{"one too many", []int{1, 2, 3, 3}, false, false},
		{"a wrong value", []int{1, 2, 4}, false, false},
		{"none", nil, false, false},
	} {
		if err := checkOrdered(&turn{items: items, stream: test.stream}); (err == nil) != test.ordered {
			t.Errorf("%s, ordered: %v", test.name, err)
		}
		if err := checkStream(&turn{items: items, stream: test.stream}); (err == nil) != test.anyOrder {
			t.Errorf("%s, in any order: %v", test.name, err)
		}
	}
	wrong := make(tasks, len(items))
	if err := checkBatch(&turn{items: items, values: wrong}); err == nil {
		t.Error("tasks that nobody worked on are taken for right")
	}
}

// A contender that is wrong fails the measuring.
func TestWrongContenderFails(t *testing.T) {
	lazy := contender{"lazy", func(*turn) error { return nil }}
	g := &group{name: "batch", items: 3, handle: noop, check: checkBatch, contenders: []contender{lazy}}
	if _, err := measure(g, tiny(), rand.New(rand.NewPCG(1, 2))); err == nil || !strings.Contains(err.Error(), "batch: lazy") {
		t.Errorf("it says %v", err)
	}
}

// Every round has each contender once, and garbage is not carried from one to the next.
func TestRounds(t *testing.T) {
	var played []string
	g := &group{name: "x", items: 1, handle: noop}
	for _, name := range []string{"a", "b", "c"} {
		g.contenders = append(g.contenders, contender{name, func(*turn) error {
			played = append(played, name)
			return nil
		}})
	}
	s := tiny()
	s.rounds = 20
	if _, err := measure(g, s, rand.New(rand.NewPCG(1, 2))); err != nil {
		t.Fatal(err)
	}
	orders := make(map[string]bool)
	for round := range slices.Chunk(played, 3) {
		orders[strings.Join(round, "")] = true
		if sorted := slices.Sorted(slices.Values(round)); !slices.Equal(sorted, []string{"a", "b", "c"}) {
			t.Fatalf("a round is %v", round)
		}
	}
	if len(played) != 60 || len(orders) < 3 {
		t.Errorf("%d turns in %d orders", len(played), len(orders))
	}
}

func TestRatio(t *testing.T) {
	r := &result{group: &group{baseline: "b"}, samples: map[string][]sample{
		"a": {{value: 10}, {value: 40}, {value: 90}}, "b": {{value: 10}, {value: 20}, {value: 30}},
	}}
	if got := r.ratio("a", "b"); got.median != 2 || got.low != 1.5 || got.high != 2.5 {
		t.Errorf("the ratio is %+v", got)
	}
	if got := r.ratio("a", "absent"); got != (ratio{}) {
		t.Errorf("beside nobody it is %+v", got)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}

// Every target speaks of groups and contenders that exist.
func TestTargets(t *testing.T) {
	var all results
	for _, g := range groups(short()) {
		r := &result{group: g, samples: make(map[string][]sample)}
		for _, c := range g.contenders {
			r.samples[c.name] = []sample{{value: 1, allocs: 1}}
		}
		all = append(all, r)
	}
	for _, target := range targets() {
		if _, ok := target.measure(all); !ok {
			t.Errorf("%s: %s is never measured", target.work, target.want)
		}
		if v, ok := target.measure(nil); ok {
			t.Errorf("%s: %s is %v of nothing", target.work, target.want, v)
		}
	}
}

// The command writes what it prints, and a chart.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	args := []string{"-short", "-rounds", "1", "-run", "^batch/no-op/8/(Penstock|by hand)", "-out", dir}
	if err := run(args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "RESULTS.md"))
	if err != nil || !bytes.Equal(written, out.Bytes()) {
		t.Errorf("RESULTS.md is not what was printed: %v", err)
	}
	for _, want := range []string{"batch/no-op/8", nameClaimLoop, "## Targets", "≤ 1.2 × claim loop"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, "results.svg"))
	if err != nil || !bytes.HasPrefix(svg, []byte("<svg")) || !bytes.Contains(svg, []byte("prefers-color-scheme: dark")) {
		t.Errorf("the chart is %.100s…: %v", svg, err)
	}
	for _, colour := range []string{"31,35,40", "208,215,222", "9,105,218", "110,119,129"} {
		if !bytes.Contains(svg, []byte("rgb("+colour+")")) || strings.Count(string(svg), "rgb("+colour+")") < 2 {
			t.Errorf("nothing has the colour %s, which the dark mode replaces", colour)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{
		{"-run", "("}, {"-run", "no such thing"}, {"-out", "/no/such/directory"}, {"-rounds", "-1"}, {"something"}, {"-nope"},
	} {
		if err := run(args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	var out bytes.Buffer
	if err := run([]string{"-list", "-run", "retry"}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "backoff") {
		t.Errorf("-list printed %q: %v", out.String(), err)
	}
}
