package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/penstock-go/penstock"
)

// showProgress shows how far a run is until stop is called: a live line on a terminal, and a plain one now and then
// anywhere else. It asks for the counters by itself, so the line stays alive while the job waits. total is 0 if nobody
// knows it.
func showProgress(w io.Writer, counters func() penstock.Counters, total int) (stop func()) {
	show, every := plainLine(w, total), 5*time.Second
	end := func() {}
	if isTerminal(w) {
		show, every = liveLine(w, total), 100*time.Millisecond
		end = func() { show(counters()); fmt.Fprintln(w) }
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				show(counters())
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
		end()
	}
}

func plainLine(w io.Writer, total int) func(penstock.Counters) {
	of := ""
	if total > 0 {
		of = fmt.Sprintf(" of %d", total)
	}
	return func(c penstock.Counters) {
		fmt.Fprintf(w, "%d%s done, %d failed, %d retries\n", c.Ended(), of, c.Failed, c.Retries)
	}
}

func liveLine(w io.Writer, total int) func(penstock.Counters) {
	if total == 0 {
		total = -1 // a spinner
	}
	bar := progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("items"),
		progressbar.OptionSetSpinnerChangeInterval(0), // turns when it is shown, without a goroutine of its own
	)
	return func(c penstock.Counters) {
		bar.Describe(fmt.Sprintf("%d failed, %d retries", c.Failed, c.Retries))
		_ = bar.Set(c.Ended()) // its error is about the terminal, and there is nowhere better to say so
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
