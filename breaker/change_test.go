package breaker_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

// Changes that time makes are told when they happen, though nobody asks.
func TestChangesAreToldWhenTheyHappen(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(45 * sec)
		s.wantTurns(turn{0, breaker.Closed, breaker.Open}, turn{30 * sec, breaker.Open, breaker.HalfOpen})
		s.enter()
		s.until(time.Hour)
		s.wantTurns(
			turn{0, breaker.Closed, breaker.Open}, turn{30 * sec, breaker.Open, breaker.HalfOpen},
			turn{75 * sec, breaker.HalfOpen, breaker.Open}, turn{105 * sec, breaker.Open, breaker.HalfOpen},
		)
	})
}

// The function may use the breaker, and even change it: that change is told after this one.
func TestOnChangeMayUseTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *breaker.Breaker
		var seen []breaker.State
		inside := false
		b = must(breaker.New(breaker.WithThreshold(1, sec), breaker.WithProbes(1, 1), breaker.WithOnChange(func(_, to breaker.State) {
			if inside {
				t.Error("called while it runs")
			}
			inside = true
			seen = append(seen, to)
			if b.State() != to {
				t.Errorf("the state is %v in the call for %v", b.State(), to)
			}
			if to == breaker.HalfOpen {
				p, _ := b.Enter()
				b.Leave(p, breaker.Succeeded)
			}
			inside = false
		})))
		p, _ := b.Enter()
		b.Leave(p, breaker.Failed)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(seen) != 3 || seen[0] != breaker.Open || seen[1] != breaker.HalfOpen || seen[2] != breaker.Closed {
			t.Errorf("told of %v", seen)
		}
	})
}

// A slow function holds up nobody but the one who made the change.
func TestSlowOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := must(breaker.New(breaker.WithThreshold(1, sec), breaker.WithProbes(1, 1), breaker.WithOnChange(func(_,
			to breaker.State) {
			if to == breaker.HalfOpen {
				<-release
			}
		})))
		p, _ := b.Enter()
		b.Leave(p, breaker.Failed)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := b.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if p, ok := b.Enter(); ok {
					b.Leave(p, breaker.Succeeded)
				}
			})
		}
		wg.Wait()
		if b.State() != breaker.Closed {
			t.Errorf("%v", b.State())
		}
		close(release)
		synctest.Wait()
	})
}

// A function that panics or exits its goroutine is logged, and harms nobody.
func TestBrokenOnChange(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	for name, broken := range map[string]func(){
		"panic=boom":     func() { panic("boom") },
		"runtime.Goexit": func() { runtime.Goexit() },
	} {
		log.Reset()
		synctest.Test(t, func(t *testing.T) {
			b := must(breaker.New(breaker.WithThreshold(1, sec), breaker.WithProbes(1, 1), breaker.WithOnChange(func(_,
				_ breaker.State) {
				broken()
			})))
			p, _ := b.Enter()
			b.Leave(p, breaker.Failed)
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, _ = b.Enter()
			b.Leave(p, breaker.Succeeded)
			if b.State() != breaker.Closed {
				t.Errorf("%v", b.State())
			}
		})
		if n := strings.Count(log.String(), name); n != 3 || !strings.Contains(log.String(), "WithOnChange") {
			t.Errorf("%q is in the log %d times, want 3:\n%s", name, n, &log)
		}
	}
	slog.SetDefault(slog.New(brokenHandler{old.Handler()}))
	b := must(breaker.New(breaker.WithThreshold(1, sec), breaker.WithOnChange(func(_, _ breaker.State) { panic("boom") })))
	p, _ := b.Enter()
	b.Leave(p, breaker.Failed)
}

type brokenHandler struct{ slog.Handler }

func (brokenHandler) Handle(_ context.Context, _ slog.Record) error { panic("no log either") }
