package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// demo starts a server, sends cfg.n requests to it and reports what became of them.
func demo(ctx context.Context, cfg config, _ io.Reader, stdout, stderr io.Writer) (int, error) {
	srv := newServer()
	url, stop, err := listen(srv)
	if err != nil {
		return exitFailed, err
	}
	defer stop()
	client := newClient(cfg.workers)
	defer client.CloseIdleConnections()
	engine, err := newEngine(cfg, client)
	if err != nil {
		return exitUsage, err
	}
	fmt.Fprintf(stdout, "%d requests to %s, which allows %d a second; this client sends at most %s, %d at a time\n",
		cfg.n, url, serverLimit, perSecond(cfg.rate), cfg.workers)
	stopProgress := showProgress(stderr, engine.Counters, cfg.n)
	sum, runErr, lost := send(ctx, engine, url, cfg.n)
	stopProgress()
	if err := sum.print(stdout, cfg.rate, srv); err != nil {
		return exitFailed, err
	}
	return verdict(ctx, runErr, lost)
}

// send does the job: all items are known beforehand, so it takes one call. runErr says why the run ended early, lost that
// an item is unaccounted for.
func send(ctx context.Context, engine *engine, url string, n int) (sum tally, runErr, lost error) {
	jobs := make([]*job, n)
	for i := range jobs {
		jobs[i] = &job{index: i, line: i + 1, url: fmt.Sprintf("%s/item/%d", url, i)}
	}
	began := time.Now()
	tasks, runErr := engine.ProcessAll(ctx, jobs)
	sum.wall = time.Since(began)
	for _, t := range tasks {
		sum.add(t)
	}
	return sum, runErr, account(tasks, n)
}

// account checks the promise that the program is about: one task for each item, in order, and each with an outcome.
func account(tasks []task, n int) error {
	if len(tasks) != n {
		return fmt.Errorf("%d items went in and %d came out", n, len(tasks))
	}
	for i, t := range tasks {
		if t.Data.index != i || t.Outcome == 0 {
			return fmt.Errorf("in the place of item %d there is item %d, %v", i, t.Data.index, t.Outcome)
		}
	}
	return nil
}
