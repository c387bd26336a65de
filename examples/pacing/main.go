// Pacing shows what the limiters do: it floods each with the same requests and draws when they are let go.
//
//	go run ./examples/pacing
//
// serves a page on loopback and prints its address. The page draws the grants while they happen, and has sliders for the
// rate, the burst, the pause and the cost. Nothing in it is simulated: every mark is a call of Acquire that returned.
//
//	go run ./examples/pacing -svg pacing.svg
//
// measures the same once, in eight seconds of real time, and writes a picture of it. The picture in docs/pacing.svg is the
// same measurement in virtual time, where it comes out alike on every machine; that needs testing/synctest, which works in
// tests only, so a test makes it and checks that it is up to date:
//
//	go test ./examples/pacing -run TestPicture -update
//
// How to read it: lanes.go has the limiters, flood.go sends them the requests; server.go and page/ are the live page,
// svg.go is the picture.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// The exit codes. A page that was served until Ctrl-C has done its job; a picture that was interrupted has not been made.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C ends the program cleanly, a second one kills it
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program, with everything it touches handed in.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "pacing: %v\nrun it with -h to see all flags\n", err)
		return exitUsage
	case cfg.svg != "":
		err = measure(ctx, cfg, stdout)
	default:
		err = serve(ctx, cfg, stdout)
	}
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "pacing: interrupted")
		return exitInterrupted
	default:
		fmt.Fprintf(stderr, "pacing: %v\n", err)
		return exitFailed
	}
}

// measure floods the limiters on the real clock and writes the picture.
func measure(ctx context.Context, cfg config, stdout io.Writer) error {
	fmt.Fprintf(stdout, "measuring for %v\n", standard.horizon)
	results, err := record(ctx, standard, cfg.settings)
	if err != nil {
		return err
	}
	picture := draw(standard, cfg.settings, results, "measured on a real clock")
	if err := os.WriteFile(cfg.svg, picture, 0o666); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "wrote %s\n", cfg.svg)
	return nil
}

const usage = `pacing floods rate limiters with the same requests and shows when each lets them go.

Without -svg it serves a page that draws it live, until Ctrl-C:

  -addr 127.0.0.1:0   where to listen, host:port; port 0 picks a free one, and the address is printed

With -svg it measures once, which takes eight seconds, and writes a picture:

  -svg FILE           the SVG file to write, replacing it

With both, what the sliders start with:

  -rate 10            requests per second that each limiter lets through, 5 to 40
  -burst 5            how many the token bucket with burst lets go at once, 1 to 20
  -pause 1s           how long the pausable one is paused, 0 to 3s, in steps of 0.1s
  -cost 4             tokens that each request costs, where tokens are limited too, 1 to 8

The exit code is 0 when the picture was written or the page was served until Ctrl-C, 1 when that failed, 2 for a wrong
flag and 130 when Ctrl-C came before the picture was done.
`

type config struct {
	addr, svg string
	settings
}

func parse(args []string) (config, error) {
	cfg := config{settings: defaults()}
	fs := flag.NewFlagSet("pacing", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run prints the error, once
	fs.StringVar(&cfg.addr, "addr", "127.0.0.1:0", "")
	fs.StringVar(&cfg.svg, "svg", "", "")
	fs.IntVar(&cfg.rate, "rate", cfg.rate, "")
	fs.IntVar(&cfg.burst, "burst", cfg.burst, "")
	fs.DurationVar(&cfg.pause, "pause", cfg.pause, "")
	fs.IntVar(&cfg.cost, "cost", cfg.cost, "")
	if err := fs.Parse(args); err != nil {
		return config{}, err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return cfg, cfg.check(given, fs.Args())
}

// check reports everything that is wrong, not only the first fault.
func (c config) check(given map[string]bool, rest []string) error {
	errs := []error{c.settings.check("-")}
	complain := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	complain(len(rest) > 0, "%q is not a flag", rest)
	complain(given["svg"] && c.svg == "", "-svg is empty: it takes the name of the file to write")
	complain(given["svg"] && given["addr"], "-addr is for the page: with -svg nothing is served")
	_, port, err := net.SplitHostPort(c.addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	complain(err != nil, "-addr is %q: it must be host:port with a port from 0 to 65535, such as 127.0.0.1:8080", c.addr)
	return errors.Join(errs...)
}
