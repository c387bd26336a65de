package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/penstock-go/penstock"
)

// list fetches the URLs of cfg.in and writes a line for each. The list may be longer than memory: IterOrdered takes
// from it only what it has room for.
func list(ctx context.Context, cfg config, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	in, finite, closeIn, err := openIn(cfg.in, stdin)
	if err != nil {
		return exitFailed, err
	}
	defer closeIn()
	out, closeOut, err := openOut(cfg.out, in, stdout)
	if err != nil {
		return exitFailed, err
	}
	defer func() {
		if closeErr := closeOut(); closeErr != nil && code == exitOK {
			code, err = exitFailed, closeErr
		}
	}()
	client := newClient(cfg.workers)
	defer client.CloseIdleConnections()
	engine, err := newEngine(cfg, client)
	if err != nil {
		return exitUsage, err
	}

	src := newFeed(in)
	defer src.close()
	began := time.Now()
	stopProgress := func() {}
	if !isTerminal(out) || !isTerminal(stderr) { // on one terminal the lines themselves show the progress
		stopProgress = showProgress(stderr, engine.Counters, 0)
	}
	sum, runErr, lost := drive(ctx, engine, src, finite, out)
	stopProgress()
	sum.wall = time.Since(began)
	if err := sum.print(stderr, cfg.rate, nil); err != nil {
		return exitFailed, err
	}
	return verdict(ctx, runErr, lost)
}

// drive writes one line for each job, in the order of the list. After a run that ended early it goes on with the jobs
// that the run has not taken, as unfinished ones, so that the output says about every URL whether it is still to do.
// runErr says why the run ended early, lost that a job has no line or not in its place.
func drive(ctx context.Context, engine *engine, src *feed, finite bool, w io.Writer) (sum tally, runErr, lost error) {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false) // URLs stay readable
	write := func(t task) error {
		if t.Data.index != sum.items {
			lost = fmt.Errorf("the result of line %d is out of order", t.Data.line)
			return lost
		}
		sum.add(t)
		if err := out.Encode(lineOf(t)); err != nil {
			return fmt.Errorf("writing the result of line %d: %w", t.Data.line, err)
		}
		return nil
	}
	for t, err := range engine.IterOrdered(ctx, penstock.FromFunc(src.run)) {
		if err != nil {
			runErr = err
			break
		}
		if err := write(t); err != nil {
			return sum, err, lost
		}
	}
	if runErr != nil {
		for j := range src.rest(sum.items, finite) {
			if err := write(task{Data: j, Err: errNotStarted, Outcome: penstock.Unfinished}); err != nil {
				return sum, errors.Join(err, runErr), lost
			}
		}
	}
	if (runErr == nil || finite) && sum.items != src.total {
		lost = fmt.Errorf("the list has %d URLs and %d lines were written", src.total, sum.items)
	}
	return sum, runErr, lost
}

var errNotStarted = errors.New("the job ended before this URL's turn")

// A line of the output, as the usage text describes it.
type line struct {
	Line     int     `json:"line"`
	URL      string  `json:"url"`
	Outcome  string  `json:"outcome"`
	Status   int     `json:"status"`
	Attempts int     `json:"attempts"`
	Error    string  `json:"error"`
	Elapsed  float64 `json:"elapsed"`
}

func lineOf(t task) line {
	l := line{
		Line:     t.Data.line,
		URL:      t.Data.url,
		Outcome:  t.Outcome.String(),
		Status:   status(t),
		Attempts: t.Attempts,
		Elapsed:  t.Data.ended.Sub(t.Data.started).Round(time.Microsecond).Seconds(),
	}
	if t.Err != nil {
		l.Error = t.Err.Error()
	}
	return l
}

// longestLine is far beyond any URL that a server would take.
const longestLine = 1 << 20

// A feed reads the list in a goroutine of its own, because a read of standard input cannot be interrupted: Ctrl-C must
// not wait for the next line.
type feed struct {
	jobs chan *job
	done chan struct{} // closed when nobody will take another job

	// Valid when jobs is closed.
	total int   // how many jobs there were
	err   error // why reading ended early

	last *job // the last one that was handed to the run
}

func newFeed(r io.Reader) *feed {
	f := &feed{jobs: make(chan *job), done: make(chan struct{})}
	go f.read(r)
	return f
}

func (f *feed) read(r io.Reader) {
	defer close(f.jobs)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	n := 0
	for lines.Scan() {
		n++
		url := strings.TrimSpace(lines.Text())
		if url == "" || strings.HasPrefix(url, "#") {
			continue
		}
		select {
		case f.jobs <- &job{index: f.total, line: n, url: url}:
			f.total++
		case <-f.done:
			return
		}
	}
	if err := lines.Err(); err != nil {
		f.err = fmt.Errorf("reading the list after line %d: %w", n, err)
	}
}

// run is the engine's source.
func (f *feed) run(ctx context.Context, yield func(*job) bool) error {
	for {
		select {
		case j, ok := <-f.jobs:
			if !ok {
				return f.err
			}
			f.last = j // before the run may end with it
			if !yield(j) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rest gives the jobs that are left when the run has ended early and the first `written` of them have their line. A file
// is read to its end; standard input may have none, so what nobody has taken from it is left alone.
func (f *feed) rest(written int, finite bool) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		// The run may have ended just as the last job was handed to it.
		if f.last != nil && f.last.index >= written && !yield(f.last) {
			return
		}
		if !finite {
			return
		}
		for j := range f.jobs {
			if !yield(j) {
				return
			}
		}
	}
}

// close lets the reading goroutine go. It does not wait: that goroutine may sit in a read that never returns.
func (f *feed) close() { close(f.done) }

// openIn opens the list and says whether it has an end that can be reached without waiting for anybody.
func openIn(name string, stdin io.Reader) (r io.Reader, finite bool, closeIn func() error, err error) {
	if name == "-" {
		return stdin, false, func() error { return nil }, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, false, nil, fmt.Errorf("-in: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory, not a list of URLs", name)
	}
	if err != nil {
		f.Close()
		return nil, false, nil, fmt.Errorf("-in: %w", err)
	}
	return f, info.Mode().IsRegular(), f.Close, nil
}

// openOut opens the output. Each line is written at once, so that whatever happens next, what was done is there.
func openOut(name string, in io.Reader, stdout io.Writer) (w io.Writer, closeOut func() error, err error) {
	if name == "-" {
		return stdout, func() error { return nil }, nil
	}
	if sameFile(name, in) {
		return nil, nil, fmt.Errorf("-out: %s is the list itself; it would be overwritten", name)
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, fmt.Errorf("-out: %w", err)
	}
	return f, f.Close, nil
}

func sameFile(name string, in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	a, errA := f.Stat()
	b, errB := os.Stat(name)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
