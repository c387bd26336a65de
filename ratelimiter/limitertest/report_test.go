package limitertest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// What Run makes of the findings is seen from outside: the test binary runs itself
// with a subject that must fail.

const subjectVar = "LIMITERTEST_SUBJECT"

// racer counts its grants without a lock.
type racer struct{ granted int }

func (r *racer) Acquire(ctx context.Context, _ ratelimiter.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.granted++
	return nil
}

var subjects = map[string]func(t *testing.T){
	"booker": func(t *testing.T) {
		Run(t, func() ratelimiter.Limiter { return &booker{interval: time.Second} }, Without("CancelHead", "a known fault"))
	},
	"racer": func(t *testing.T) { Run(t, func() ratelimiter.Limiter { return &racer{} }) },
	"nil":   func(t *testing.T) { Run(t, nil) },
}

// TestSubject is no test of its own.
func TestSubject(t *testing.T) {
	subject, ok := subjects[os.Getenv(subjectVar)]
	if !ok {
		t.Skip("it is run by TestReports, to fail")
	}
	subject(t)
}

func TestReports(t *testing.T) {
	for name, wants := range map[string][]string{
		"booker": {
			"--- PASS: TestSubject/Grant ",
			"--- SKIP: TestSubject/CancelHead ", "left out: a known fault",
			"--- FAIL: TestSubject/CancelMiddle ",
			"rule 3 of ratelimiter.Limiter is broken: a caller that got an error has used nothing up, wherever it stood in line",
			"8 callers waited in line, from 31.25ms on. Number 5 (Acquire) gave up at 31.25ms; its context was cancelled.",
			"They differ from number 5 on.\n         got: 1s, 2s, 3s, 4s, 6s, 7s, 8s, 9s, 10s\n" +
				"        want: 1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 9s\n",
			"--- PASS: TestSubject/Order ",
			"--- SKIP: TestSubject/TryAcquire ", "the limiter is no TryAcquirer",
		},
		"racer": {"--- FAIL: TestSubject/Crowd ", "DATA RACE", "(*racer).Acquire"},
		"nil":   {"--- FAIL: TestSubject ", "limitertest: newLimiter is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "racer" && !raceEnabled {
				t.Skip("the race detector is off")
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestSubject$", "-test.v", "-test.count=1")
			cmd.Env = append(os.Environ(), subjectVar+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Error("the subject passed")
			}
			for _, want := range wants {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output does not contain %q", want)
				}
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}
