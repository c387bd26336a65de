package main

import (
	"fmt"
	"io"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
)

// A tally is what became of the items.
type tally struct {
	items, succeeded, failed, unfinished int
	attempts, retries                    int
	wall                                 time.Duration
}

func (s *tally) add(t task) {
	s.items++
	switch t.Outcome {
	case penstock.Succeeded:
		s.succeeded++
	case penstock.Failed:
		s.failed++
	case penstock.Unfinished:
		s.unfinished++
	}
	s.attempts += t.Attempts
	s.retries += max(t.Attempts-1, 0)
}

// print writes the table, with the server's own counts when there is a server to ask.
func (s *tally) print(w io.Writer, asked ratelimiter.Rate, srv *server) error {
	var err error
	row := func(name, value string) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%-24s %8s\n", name, value)
		}
	}
	count := func(name string, n int) { row(name, fmt.Sprint(n)) }

	count("items", s.items)
	count("  succeeded", s.succeeded)
	count("  failed", s.failed)
	count("  unfinished", s.unfinished)
	count("attempts", s.attempts)
	count("retries", s.retries)
	if srv != nil {
		count("429s seen by the server", int(srv.answered.throttled.Load()))
		count("500s seen by the server", int(srv.answered.failed.Load()))
	}
	row("achieved rate", fmt.Sprintf("%.1f/s", float64(max(s.attempts-1, 0))/s.wall.Seconds()))
	row("  at most", perSecond(asked))
	row("wall time", fmt.Sprintf("%.1f s", s.wall.Seconds()))
	return err
}

func perSecond(r ratelimiter.Rate) string {
	return fmt.Sprintf("%.4g/s", float64(r.Count)/r.Per.Seconds())
}
