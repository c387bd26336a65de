// Quickstart sends many HTTP requests through a penstock engine without overrunning the service that answers them.
//
//	go run ./examples/quickstart
//
// starts a server on loopback that allows 50 requests a second and fails now and then, sends it 500 requests, and prints
// what became of them.
//
//	go run ./examples/quickstart -in urls.txt -out results.jsonl -rate 10/s -workers 8 -retries 3 -timeout 5s
//
// does the same job on a list of your own: one URL a line in, one line of JSON each out, in the same order.
//
// How to read it: client.go is what a program of your own would contain, the handler and the engine around it; demo.go
// and list.go are the two jobs that use it; the rest is what surrounds them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// The exit codes. Failed items are results like any other and do not change the code.
const (
	exitOK          = 0
	exitFailed      = 1   // the job could not be done, or an item is unaccounted for
	exitUsage       = 2   // a flag is wrong
	exitInterrupted = 130 // ended by Ctrl-C, as shells report it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C ends the job cleanly, a second one kills the program
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program, with everything it touches handed in.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "quickstart: %v\nrun it with -h to see all flags\n", err)
		return exitUsage
	}
	job := demo
	if cfg.in != "" {
		job = list
	}
	code, err := job(ctx, cfg, stdin, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "quickstart: %v\n", err)
	}
	return code
}

// verdict turns the end of a run into an exit code. An item that is unaccounted for is worse than anything else.
func verdict(ctx context.Context, runErr, lost error) (int, error) {
	switch {
	case lost != nil:
		return exitFailed, fmt.Errorf("this must not happen: %w", lost)
	case runErr != nil && ctx.Err() != nil:
		return exitInterrupted, errors.New("interrupted; what was not done is marked unfinished")
	case runErr != nil:
		return exitFailed, runErr
	default:
		return exitOK, nil
	}
}

const usage = `quickstart sends many HTTP requests under a rate limit, with retries, and loses none of them.

Without -in it starts a server on loopback that allows 50 requests a second, sends it requests and prints a table:

  -n 500          how many requests

With -in it fetches a list of URLs and writes one line of JSON for each, in the order of the list:

  -in FILE        the list, one URL a line, - for standard input; empty lines and lines that start with # are skipped
  -out FILE       where the JSON lines go, replacing the file; - for standard output, the default

With both:

  -rate 43/s      most requests per second, or per minute (100/m) or hour (3600/h); with -in the default is 10/s
  -workers 8      most requests at the same time
  -retries 3      most further attempts for a URL after a 429, a 5xx answer, a timeout or a broken connection
  -timeout 5s     for one attempt

A line of the output: line (in the list), url, outcome (succeeded, failed or unfinished), status (the HTTP status of the
last attempt, 0 if it had no answer), attempts, error, and elapsed: seconds from the start of the first attempt to the end
of the last one. Ctrl-C ends the job; what was not done is written as unfinished.

The exit code is 0 when everything was done (a failed URL is a result, not an error), 1 when the job itself failed, 2 for a
wrong flag and 130 after Ctrl-C.
`

type config struct {
	in, out string
	n       int
	rate    ratelimiter.Rate
	workers int
	retries int
	timeout time.Duration
}

func parse(args []string) (config, error) {
	var cfg config
	fs := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run prints the error, once
	fs.StringVar(&cfg.in, "in", "", "")
	fs.StringVar(&cfg.out, "out", "-", "")
	fs.IntVar(&cfg.n, "n", 500, "")
	fs.IntVar(&cfg.workers, "workers", 8, "")
	fs.IntVar(&cfg.retries, "retries", 3, "")
	fs.DurationVar(&cfg.timeout, "timeout", 5*time.Second, "")
	fs.Func("rate", "", func(s string) (err error) {
		cfg.rate, err = ratelimiter.ParseRate(s)
		return err
	})
	if err := fs.Parse(args); err != nil {
		return config{}, err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["rate"] {
		cfg.rate = ratelimiter.PerSecond(43) // a bit under what the demo's server allows
		if cfg.in != "" {
			cfg.rate = ratelimiter.PerSecond(10)
		}
	}
	return cfg, cfg.check(given, fs.Args())
}

// check reports everything that is wrong, not only the first fault.
func (c config) check(given map[string]bool, rest []string) error {
	var errs []error
	complain := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	complain(len(rest) > 0, "%q is not a flag: a list of URLs is given as -in FILE", rest)
	complain(given["in"] && c.in == "", "-in is empty: it takes a file name, or - for standard input")
	complain(given["out"] && c.in == "", "-out needs -in: the demo prints only its table")
	complain(c.out == "", "-out is empty: it takes a file name, or - for standard output")
	complain(given["n"] && c.in != "", "-n is for the demo: with -in the list says how many there are")
	complain(c.n < 1, "-n is %d: it must be at least 1", c.n)
	complain(c.workers < 1, "-workers is %d: it must be at least 1", c.workers)
	complain(c.retries < 0, "-retries is %d: it must be 0 or more", c.retries)
	complain(c.timeout <= 0, "-timeout is %v: it must be longer than 0, such as 5s", c.timeout)
	return errors.Join(errs...)
}
