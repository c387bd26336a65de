package retry_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/penstock-go/penstock/retry"
)

// What an engine does with a policy: it asks after each failed attempt, and does the waiting itself.
func Example() {
	policy := retry.Policy{
		Max:     3,
		Backoff: retry.Exponential(time.Second, time.Minute, retry.WithJitter(0)), // without jitter only for the output below
		Unless:  retry.Is(os.ErrNotExist),
	}
	if err := policy.Validate(); err != nil {
		fmt.Println(err)
		return
	}

	failures := []error{
		errors.New("connection reset"),
		retry.After(errors.New("too many requests"), 30*time.Second),
		retry.Permanent(errors.New("account closed")),
	}
	for i, err := range failures {
		if !policy.Retryable(err) {
			fmt.Printf("%v: give up\n", err)
			break
		}
		delay, _ := policy.Delay(i+1, err)
		fmt.Printf("%v: again in %v\n", err, delay)
	}
	// Output:
	// connection reset: again in 1s
	// too many requests: again in 32s
	// account closed: give up
}

// A handler reads the header of an HTTP response and says what it knows; the policy does the rest.
func Example_httpStatus() {
	check := func(resp *http.Response) error {
		err := fmt.Errorf("server said %d", resp.StatusCode)
		switch {
		case resp.StatusCode < 400:
			return nil
		case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
			if d, ok := retry.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
				return retry.After(err, d)
			}
			return err
		default:
			return retry.Permanent(err)
		}
	}

	policy := retry.Policy{Max: 5}
	for _, resp := range []*http.Response{
		{StatusCode: 429, Header: http.Header{"Retry-After": {"1.5"}}},
		{StatusCode: 503},
		{StatusCode: 404},
	} {
		err := check(resp)
		hint, ok := policy.Hint(err)
		fmt.Printf("%v: retry %v, hint %v %v\n", err, policy.Retryable(err), hint, ok)
	}
	// Output:
	// server said 429: retry true, hint 2s true
	// server said 503: retry true, hint 0s false
	// server said 404: retry false, hint 0s false
}

func ExampleConstant() {
	backoff := retry.Constant(2 * time.Second)
	fmt.Println(backoff(1, nil), backoff(2, nil), backoff(100, nil))
	// Output: 2s 2s 2s
}

func ExampleExponential() {
	backoff := retry.Exponential(100*time.Millisecond, 30*time.Second)
	for _, failed := range []int{1, 5, 1_000_000} {
		d := backoff(failed, nil) // anything above zero, up to 100ms, 1.6s, 30s
		fmt.Println(d > 0, d <= 30*time.Second)
	}
	// Output:
	// true true
	// true true
	// true true
}

func ExampleWithFactor() {
	backoff := retry.Exponential(time.Second, time.Minute, retry.WithFactor(3), retry.WithJitter(0))
	for failed := 1; failed <= 5; failed++ {
		fmt.Println(backoff(failed, nil))
	}
	// Output:
	// 1s
	// 3s
	// 9s
	// 27s
	// 1m0s
}

func ExampleWithJitter() {
	backoff := retry.Exponential(10*time.Second, time.Minute, retry.WithJitter(0.2))
	d := backoff(1, nil)
	fmt.Println(d >= 8*time.Second, d <= 10*time.Second)
	// Output: true true
}

func ExampleWithRandom() {
	seeded := func() retry.Backoff {
		return retry.Exponential(time.Second, time.Minute, retry.WithRandom(rand.New(rand.NewPCG(1, 2))))
	}
	first, second := seeded(), seeded()
	fmt.Println(first(1, nil) == second(1, nil), first(2, nil) == second(2, nil))
	// Output: true true
}

func ExampleIs() {
	policy := retry.Policy{Max: 3, Unless: retry.Is(os.ErrNotExist, os.ErrPermission)}
	_, err := os.Open("no/such/file")
	fmt.Println(policy.Retryable(err))
	fmt.Println(policy.Retryable(errors.New("disk is busy")))
	// Output:
	// false
	// true
}

func ExampleAs() {
	policy := retry.Policy{Max: 3, If: retry.As[*os.PathError]()}
	_, err := os.Open("no/such/file")
	fmt.Println(policy.Retryable(fmt.Errorf("reading the list: %w", err)))
	fmt.Println(policy.Retryable(errors.New("bad row")))
	// Output:
	// true
	// false
}

func ExamplePermanent() {
	policy := retry.Policy{Max: 3} // every error is retried …
	err := fmt.Errorf("row 7: %w", retry.Permanent(os.ErrNotExist))
	fmt.Println(policy.Retryable(err)) // … but this one is marked
	fmt.Println(err, errors.Is(err, os.ErrNotExist))
	// Output:
	// false
	// row 7: file does not exist true
}

func ExampleIsPermanent() {
	err := retry.Permanent(errors.New("bad address"))
	fmt.Println(retry.IsPermanent(err), retry.IsPermanent(errors.Unwrap(err)))
	// Output: true false
}

func ExampleAfter() {
	policy := retry.Policy{Max: 3, Backoff: retry.Exponential(time.Second, time.Minute)}
	err := retry.After(errors.New("too many requests"), 10*time.Second)
	delay, _ := policy.Delay(1, err)
	fmt.Println(err)
	fmt.Println(delay > 10*time.Second, delay <= 11*time.Second)
	// Output:
	// too many requests
	// true true
}

// quotaError knows by itself when to come back; it needs nothing of this package.
type quotaError struct{ resets time.Duration }

func (e *quotaError) Error() string             { return "quota used up" }
func (e *quotaError) RetryAfter() time.Duration { return e.resets }

func ExampleRetryAfter() {
	fmt.Println(retry.RetryAfter(fmt.Errorf("row 7: %w", &quotaError{resets: time.Minute})))
	fmt.Println(retry.RetryAfter(errors.New("connection reset")))
	// Output:
	// 1m0s true
	// 0s false
}

func ExampleParseRetryAfter() {
	now := time.Date(1994, 11, 6, 8, 49, 7, 0, time.UTC)
	for _, header := range []string{
		"120", "2.5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun Nov  6 08:00:00 1994", "-3", "soon",
	} {
		fmt.Println(retry.ParseRetryAfter(header, now))
	}
	// Output:
	// 2m0s true
	// 3s true
	// 30s true
	// 0s true
	// 0s false
	// 0s false
}

func ExamplePolicy_Validate() {
	policy := retry.Policy{Max: -1, MaxRetryAfter: -time.Second}
	fmt.Println(policy.Validate())
	// Output:
	// retry: Policy.Max is -1: it counts the attempts after the first and must be 0 or more
	// retry: Policy.MaxRetryAfter is -1s: it must be positive, or 0 for the default of 1h0m0s
}

func ExamplePolicy_Retryable() {
	policy := retry.Policy{Max: 3, If: retry.As[*quotaError]()}
	fmt.Println(policy.Retryable(&quotaError{}))
	fmt.Println(policy.Retryable(retry.Permanent(&quotaError{})))
	// Output:
	// true
	// false
}

// A task with two retries is turned away three times before the service has room for it.
func ExamplePolicy_Free() {
	policy := retry.Policy{Max: 2, FreeThrottled: true}
	throttled := retry.After(errors.New("too many requests"), time.Second)

	used := 0
	for _, err := range []error{throttled, throttled, throttled, errors.New("connection reset")} {
		if !policy.Free(err) {
			used++
		}
	}
	fmt.Printf("%d of %d retries used\n", used, policy.Max)
	// Output: 1 of 2 retries used
}

func ExamplePolicy_Hint() {
	policy := retry.Policy{Max: 3, MaxRetryAfter: time.Minute}
	fmt.Println(policy.Hint(retry.After(errors.New("too many requests"), 24*time.Hour)))
	// Output: 1m0s true
}

func ExamplePolicy_Delay() {
	policy := retry.Policy{Max: 3, Backoff: retry.Constant(-1)}
	_, err := policy.Delay(1, errors.New("connection reset"))
	fmt.Println(err)
	// Output: retry: Policy.Backoff returned -1ns after failed attempt 1: a delay must be 0 or more
}

// One retry for ten tasks, and two on top for bad moments.
func ExampleBudget() {
	budget, err := retry.NewBudget(0.1, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = retry.Policy{Max: 5, Budget: budget} // and the same budget in every other policy that calls this service

	// The engine does the rest. When every task fails, this is what it sees:
	retries := 0
	for range 100 {
		budget.Deposit() // a first attempt
		for range 5 {    // which fails, and so does each retry
			if budget.Withdraw() {
				retries++
			}
		}
	}
	fmt.Printf("%d retries for 100 failing tasks instead of 500\n", retries)
	// Output: 11 retries for 100 failing tasks instead of 500
}

func ExampleNewBudget() {
	_, err := retry.NewBudget(0, 10)
	fmt.Println(err)
	// Output: retry: NewBudget: ratio is 0: it counts retries per task and must be from 0.000001 to 1000
}
