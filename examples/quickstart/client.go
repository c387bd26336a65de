package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// A job is one URL. The engine never runs two attempts of one item at once, and hands the item out only after the last
// attempt has returned, so the handler may keep the times here without a lock.
type job struct {
	index int // among the jobs, from 0
	line  int // in the list, from 1
	url   string

	started, ended time.Time // of the first attempt, and of the last one
}

// An answer is what a successful attempt brings back.
type answer struct {
	status int
	bytes  int64
}

type (
	engine = penstock.Engine[*job, answer]
	task   = penstock.Task[*job, answer]
)

// longestPause caps what a server may ask for with Retry-After: a program that somebody watches should not look dead
// for an hour.
const longestPause = 2 * time.Minute

// newEngine puts the pieces together: up to cfg.workers requests at once, cfg.rate at most, failed ones retried. The
// caller closes the client's connections when it is done with the engine.
func newEngine(cfg config, client *http.Client) (*engine, error) {
	bucket, err := ratelimiter.NewTokenBucket(cfg.rate)
	if err != nil {
		return nil, fmt.Errorf("-rate: %w", err)
	}
	return penstock.New(fetcher(client), cfg.workers,
		// Pausable: when the server tells one worker to come back later, all of them wait.
		penstock.WithLimiter(ratelimiter.NewPausable(bucket)),
		penstock.WithRetry(retry.Policy{
			Max:           cfg.retries,
			Backoff:       retry.Exponential(100*time.Millisecond, 5*time.Second),
			MaxRetryAfter: longestPause,
		}),
		penstock.WithAttemptTimeout(cfg.timeout),
	)
}

// newClient makes a client with connections of its own, one to keep for each worker. It follows redirects within an
// attempt; the limiter sees the attempt, not each hop.
func newClient(workers int) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = workers
	return &http.Client{Transport: transport}
}

// fetcher returns the handler: one attempt at one job. It only says what happened; whether and when there is another
// attempt is the engine's business.
func fetcher(client *http.Client) func(context.Context, *job) (answer, error) {
	return func(ctx context.Context, j *job) (answer, error) {
		if j.started.IsZero() {
			j.started = time.Now()
		}
		defer func() { j.ended = time.Now() }()

		req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, nil)
		if err != nil {
			return answer{}, retry.Permanent(err)
		}
		if scheme := req.URL.Scheme; scheme != "http" && scheme != "https" || req.URL.Host == "" {
			return answer{}, retry.Permanent(fmt.Errorf("%q is not a URL that starts with http:// or https:// and a host", j.url))
		}
		resp, err := client.Do(req)
		if err != nil {
			return answer{}, err
		}
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body) // to the end, so that the connection can be used again
		if err != nil {
			return answer{}, fmt.Errorf("reading the answer of %s: %w", j.url, err)
		}
		if err := judge(resp, time.Now()); err != nil {
			return answer{}, err
		}
		return answer{resp.StatusCode, n}, nil
	}
}

// judge turns a status into an error that tells the retry policy what to do: come back when the server says so, try
// again, or give up.
func judge(resp *http.Response, now time.Time) error {
	code := resp.StatusCode
	err := &statusError{code}
	switch {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if wait, ok := retry.ParseRetryAfter(resp.Header.Get("Retry-After"), now); ok {
			return retry.After(err, wait)
		}
		return err
	case code >= 500:
		return err
	default: // asking again for what is not there does not make it appear
		return retry.Permanent(err)
	}
}

type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("the server answered %d %s", e.code, http.StatusText(e.code))
}

// status is the HTTP status of the task's last attempt, 0 if there was no answer.
func status(t task) int {
	if failed, ok := errors.AsType[*statusError](t.Err); ok {
		return failed.code
	}
	return t.Result.status
}
