package sim_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/internal/sim"
	"go.uber.org/goleak"
)

var (
	seedFlag  = flag.Uint64("sim.seed", 0, "simulate this seed alone, until it fails")
	dropFlag  = flag.String("sim.drop", "", "leave these parts of the scenario out, separated by commas")
	timesFlag = flag.Int("sim.times", 500, "simulate -sim.seed so often")
	fixedFlag = flag.Int("sim.fixed", 0, "simulate so many fixed seeds, and no random ones")
	forFlag   = flag.Duration("sim.for", 0, "simulate random seeds for so long")
)

func TestMain(m *testing.M) {
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil))) // broken hooks are logged there
	os.Setenv("GODEBUG", os.Getenv("GODEBUG")+",tracebacklabels=1") // so that a crash shows how to replay it
	goleak.VerifyTestMain(m)
}

// TestRandomEngines simulates engines. A failing one is shrunk, and the last line says how to replay it.
func TestRandomEngines(t *testing.T) {
	if *seedFlag != 0 {
		replay(t, sim.Draw(*seedFlag, sim.Virtual, dropped()...))
		return
	}
	fixed, random := 700, 700
	if testing.Short() {
		fixed, random = 150, 0
	}
	if *fixedFlag > 0 {
		fixed, random = *fixedFlag, 0
	}
	seeds := func(i int) uint64 {
		if i < fixed {
			return uint64(i + 1)
		}
		return rand.Uint64()
	}
	start := time.Now()
	for i := 0; i < fixed+random || time.Since(start) < *forFlag; i++ {
		s := sim.Draw(seeds(i), sim.Virtual)
		if broken := simulate(t, s); broken != nil {
			report(t, s, broken)
			return
		}
	}
}

func dropped() []string {
	if *dropFlag == "" {
		return nil
	}
	return strings.Split(*dropFlag, ",")
}

// replay simulates one scenario until it fails.
func replay(t *testing.T, s *sim.Scenario) {
	t.Logf("the scenario:\n%v", s)
	for i := range *timesFlag {
		if broken := simulate(t, s); broken != nil {
			t.Fatalf("it failed in simulation %d:\n%s", i+1, strings.Join(broken, "\n"))
		}
	}
}

// replayLine is the command that replays a scenario.
func replayLine(s *sim.Scenario) string {
	test := map[sim.Clock]string{sim.Virtual: "TestRandomEngines", sim.Real: "TestRealClock"}[s.Clock]
	line := fmt.Sprintf("go test -race ./internal/sim -run '^%s$' -sim.seed=%d", test, s.Seed)
	if len(s.Dropped) > 0 {
		line += fmt.Sprintf(" -sim.drop='%s'", strings.Join(s.Dropped, ","))
	}
	return line
}

// simulate simulates a scenario, in a bubble if its time is virtual, and returns what it broke.
func simulate(t *testing.T, s *sim.Scenario) (broken []string) {
	defer watch(replayLine(s))()
	ok := true
	pprof.Do(context.Background(), pprof.Labels("replay", replayLine(s)), func(context.Context) {
		ok = t.Run(fmt.Sprint("seed=", s.Seed), func(t *testing.T) { // so that a data race is known by its seed
			defer func() {
				if v := recover(); v != nil { // everything in the bubble waits for everything
					broken = append(broken, fmt.Sprintf("%v\n%s", v, stacks()))
				}
			}()
			if s.Clock == sim.Real {
				broken = sim.Simulate(s)
				return
			}
			synctest.Test(t, func(*testing.T) { broken = sim.Simulate(s) })
		})
	})
	if !ok && broken == nil {
		broken = []string{"the race detector, or the test itself, has failed: see above"}
	}
	return broken
}

// watch ends the process when a simulation hangs on the real clock. It counts seconds one by one, so that those in which
// the whole machine stood still are not taken for it.
func watch(what string) (stop func()) {
	done := make(chan struct{})
	go func() {
		seconds := time.NewTicker(time.Second)
		defer seconds.Stop()
		for range 60 {
			select {
			case <-seconds.C:
			case <-done:
				return
			}
		}
		debug.SetTraceback("all")
		panic("the simulation hangs\n" + what)
	}()
	return func() { close(done) }
}

// stacks are those of goroutines in bubbles.
func stacks() string {
	buf := make([]byte, 1<<20)
	var bubbled []string
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if head, _, _ := strings.Cut(g, "\n"); strings.Contains(head, "synctest bubble") {
			bubbled = append(bubbled, g)
		}
	}
	return strings.Join(bubbled, "\n\n")
}

// report shrinks a failing scenario and says what is wrong with it.
func report(t *testing.T, s *sim.Scenario, broken []string) {
	deadline := time.Now().Add(time.Minute)
	small := sim.Shrink(s, func(s *sim.Scenario) bool {
		for range 20 {
			if time.Now().After(deadline) {
				return false
			}
			if b := simulate(t, s); b != nil {
				broken = b
				return true
			}
		}
		return false
	})
	t.Errorf("seed %d is broken:\n%s\nthe scenario:\n%v\nreplay it with:\n%s", s.Seed, strings.Join(broken, "\n"), small, replayLine(small))
}
