package limitertest

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
)

// The runtime says of each goroutine in a stack dump which bubble it is in, and
// whether it is durably blocked. That is in no API. If it changes, no goroutines
// will be found here, and a leak shows when the bubble ends: the runtime does not
// let a bubble end with goroutines in it.

const bubbleMark = ", synctest bubble "

// thisBubble is the mark of the bubble that the caller is in; empty if unknown.
func thisBubble() string {
	var buf [256]byte
	header, _, _ := bytes.Cut(buf[:runtime.Stack(buf[:], false)], []byte("\n"))
	return markOf(string(header))
}

func markOf(header string) string {
	i := strings.Index(header, bubbleMark)
	if i < 0 {
		return ""
	}
	mark := header[i+len(bubbleMark):]
	if end := strings.IndexFunc(mark, func(c rune) bool { return c < '0' || c > '9' }); end >= 0 {
		mark = mark[:end]
	}
	return mark
}

// A goroutine is one of a bubble's, as in a stack dump.
type goroutine struct{ header, stack string }

// goroutines returns those in the bubble but for the caller's and the bubble's
// own.
func goroutines(bubble string) (all []goroutine) {
	if bubble == "" {
		return nil
	}
	self, _, _ := strings.Cut(dump(false), "[")
	for text := range strings.SplitSeq(dump(true), "\n\n") {
		header, stack, _ := strings.Cut(text, "\n")
		if markOf(header) != bubble || strings.HasPrefix(header, self) || strings.Contains("\n"+stack, "\ntesting/synctest.Test") {
			continue
		}
		all = append(all, goroutine{header, stack})
	}
	return all
}

func dump(all bool) string {
	for size := 1 << 16; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, all); n < size || size >= 1<<26 {
			return string(buf[:n])
		}
	}
}

// describe shows some goroutines.
func describe(gs []goroutine) string {
	const most = 3
	var b strings.Builder
	for i, g := range gs {
		if i == most {
			fmt.Fprintf(&b, "and %d more\n", len(gs)-most)
			break
		}
		fmt.Fprintf(&b, "%s\n%s\n", g.header, strings.TrimSpace(g.stack))
	}
	return strings.TrimSpace(b.String())
}
