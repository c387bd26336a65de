package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A unit says what a group's figures are.
type unit struct {
	head string
	show func(float64) string
	time bool // then allocations are shown too
}

var (
	perItem      = unit{"time per item", showTime, true}
	perRun       = unit{"time per run", showTime, true}
	perGrant     = unit{"time per grant", showTime, true}
	perTrip      = unit{"time per round trip", showTime, true}
	bytesPerItem = unit{"bytes per item", showBytes, false}
	totalBytes   = unit{"bytes", showBytes, false}
	share        = unit{"achieved / asked", func(v float64) string { return fmt.Sprintf("%.4f", v) }, false}
)

func showTime(ns float64) string {
	switch {
	case ns < 1e3:
		return significant(ns) + " ns"
	case ns < 1e6:
		return significant(ns/1e3) + " µs"
	}
	return significant(ns/1e6) + " ms"
}

func showBytes(v float64) string { return grouped(int(math.Round(v))) + " B" }

// significant shows three digits and no exponent.
func significant(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// grouped writes a number with commas.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// showCount is for allocations: what is made once for a whole run is nothing per item.
func showCount(v float64) string {
	if v < 0.005 {
		return "0"
	}
	return significant(v)
}

func (r ratio) String() string {
	if r.median == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s … %s)", significant(r.median), significant(r.low), significant(r.high))
}

// A table is written with columns of equal width: Markdown that also reads well in a terminal.
type table [][]string

func (t table) write(w io.Writer) {
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range t {
		writeRow(w, row, widths, " ")
		if n == 0 {
			writeRow(w, make([]string, len(row)), widths, "-")
		}
	}
}

// writeRow puts names to the left and figures to the right.
func writeRow(w io.Writer, row []string, widths []int, fill string) {
	var line strings.Builder
	line.WriteString("|")
	for i, cell := range row {
		space := strings.Repeat(fill, widths[i]-utf8.RuneCountInString(cell))
		switch {
		case fill == "-" && i > 0:
			line.WriteString(" " + space[1:] + ": |")
		case i == 0:
			line.WriteString(" " + cell + space + " |")
		default:
			line.WriteString(" " + space + cell + " |")
		}
	}
	fmt.Fprintln(w, line.String())
}

// write writes a group's table and notes.
func (r *result) write(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n`%s`", r.about, r.name)
	if r.items > 0 {
		fmt.Fprintf(w, ", %s items", grouped(r.items))
	}
	fmt.Fprint(w, "\n\n")
	r.table().write(w)
	for _, note := range r.notes {
		fmt.Fprintf(w, "\n%s\n", note)
	}
}

func (r *result) table() table {
	head := []string{"", r.unit.head}
	if r.baseline != "" {
		head = append(head, "× baseline (quartiles)")
	}
	if r.unit.time {
		head = append(head, "allocs", "bytes")
	}
	t := table{head}
	for _, c := range r.contenders {
		row := []string{c.name, r.unit.show(r.median(c.name, value))}
		switch {
		case r.baseline == "":
		case c.name == r.baseline:
			row = append(row, "baseline")
		default:
			row = append(row, r.ratio(c.name, r.baseline).String())
		}
		if r.unit.time {
			row = append(row, showCount(r.median(c.name, allocs)), grouped(int(math.Round(r.median(c.name, volume)))))
		}
		t = append(t, row)
	}
	return t
}

// writeHead says what the figures are and where they come from.
func writeHead(w io.Writer, rounds int, how string) {
	fmt.Fprintf(w, "# Results\n\nMade by `go run ./bench%s` on %s: %s, %s/%s, %d processors, %d rounds.\n\n%s\n", how,
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), rounds,
		"Times, allocations and bytes are medians over the rounds. A ratio is the median, with the quartiles, of the ratios "+
			"within each round, so it need not be the quotient of two medians. Compare rows, not machines. "+
			"[README.md](README.md) says what is measured and how.")
}

// writeTargets is the end of a report: what was to be reached and what was.
func writeTargets(w io.Writer, all results) {
	t := table{{"work", "target", "measured", "reached"}}
	for _, g := range targets() {
		v, ok := g.measure(all)
		if !ok {
			continue // it did not take part
		}
		reached := "yes"
		if !g.reached(v) {
			reached = "no"
		}
		t = append(t, []string{g.work, g.want, g.show(v), reached})
	}
	if len(t) == 1 {
		return
	}
	fmt.Fprintf(w, "\n## Targets\n\n")
	t.write(w)
	fmt.Fprint(w, "\nOf two things that are to cost the same (10 items on many workers) one is slower in half of the rounds: "+
		"that target is reached when the lower quartile reaches it. Everywhere else the median counts.\n")
}
