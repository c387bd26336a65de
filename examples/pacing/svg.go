package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The measures of the picture, in its own units; a unit is a pixel if it is not scaled.
const (
	svgWidth   = 1000
	plotLeft   = 258 // the names are to the left
	plotRight  = 888 // the numbers are to the right
	plotTop    = 118
	laneHeight = 54
	markWidth  = 2.6
	rowHeight  = 38 // for marks, within a lane
)

// draw makes the picture: a lane for each limiter, a mark for each grant. It has a background of its own, so that it can
// be read wherever it is shown, and is dark where the reader prefers that.
func draw(p plan, s settings, results []result, how string) []byte {
	d := &drawing{plan: p}
	bottom := plotTop + laneHeight*len(results)
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc">`,
		svgWidth, bottom+74)
	d.add(`<title id="title">The same requests through each rate limiter</title>`)
	d.add(`<desc id="desc">%s</desc>`, text(describe(p, s, results)))
	d.add(svgStyle)
	d.add(`<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="10"/>`, svgWidth-1, bottom+73)
	d.label(24, 40, "title", "The same requests through each limiter")
	d.label(24, 62, "soft", fmt.Sprintf("Every limiter is asked for %d requests/s. Each mark is a grant; ×5 marks five at "+
		"once.", s.rate))
	for i, r := range results {
		d.pauses(r, plotTop+laneHeight*i) // below everything else
	}
	d.axis(bottom)
	d.arrivals(bottom)
	for i, r := range results {
		d.lane(r, plotTop+laneHeight*i)
	}
	d.add(`<line class="edge" x1="24" y1="%d" x2="%d" y2="%[1]d"/>`, bottom, svgWidth-24)
	d.label(24, bottom+52, "soft small", "penstock, examples/pacing; "+how)
	d.add(`<rect class="no" x="560" y="%d" width="%.1f" height="13" rx="0.8"/>`, bottom+41, markWidth)
	d.label(571, bottom+52, "soft small", "a grant that the service answered with “too many requests”")
	d.add(`</svg>`)
	return d.Bytes()
}

const svgStyle = `<style>
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;fill:#1b2430}
.title{font-size:20px;font-weight:650}.name{font-size:14px;font-weight:600}.small{font-size:12px}.soft{fill:#566173}
.mid{text-anchor:middle}.end{text-anchor:end}.count,.row{font-size:11px;fill:#566173}
.ground{fill:#fff;stroke:#d5dbe3}.edge{stroke:#d5dbe3}.grid{stroke:#e9edf2}
.wave{stroke:#8a94a6;stroke-dasharray:3 4}.arrow{fill:#566173}
.pause{fill:#f1e3c4}.pausetext{fill:#7a5408}
.g0{fill:#1f63d6}.g1{fill:#b4530a}.g2{fill:#13795b}.no{fill:none;stroke:#c4262e;stroke-width:1.3}.notext{fill:#c4262e}
@media (prefers-color-scheme:dark){text{fill:#e8ecf2}.soft,.count,.row{fill:#a3aebd}
.ground{fill:#12171f;stroke:#303a48}.edge{stroke:#303a48}.grid{stroke:#202834}
.wave{stroke:#6b7686}.arrow{fill:#a3aebd}.pause{fill:#3b3117}.pausetext{fill:#e2bf6d}
.g0{fill:#6ea8ff}.g1{fill:#f2994a}.g2{fill:#4fcf9f}.no{stroke:#ff7b80}.notext{fill:#ff7b80}}
</style>`

type drawing struct {
	bytes.Buffer
	plan plan
}

func (d *drawing) add(format string, args ...any) {
	fmt.Fprintf(&d.Buffer, format, args...)
	d.WriteByte('\n')
}

func (d *drawing) label(x, y int, class, s string) {
	d.add(`<text x="%d" y="%d" class="%s">%s</text>`, x, y, class, text(s))
}

// x is the place of an instant. What comes after the end, as a pause may, or a grant of the last moment that its caller
// noticed late, is at the end.
func (d *drawing) x(at time.Duration) float64 {
	return plotLeft + (plotRight-plotLeft)*min(at, d.plan.horizon).Seconds()/d.plan.horizon.Seconds()
}

// arrivals are drawn through all lanes: the requests are the same for all.
func (d *drawing) arrivals(bottom int) {
	for _, w := range d.plan.waves {
		x := d.x(w.at)
		d.add(`<line class="wave" x1="%.1[1]f" y1="%[2]d" x2="%.1[1]f" y2="%[3]d"/>`, x, plotTop-8, bottom)
		d.add(`<path class="arrow" d="M%.1f %d l-5 -9 h10 z"/>`, x, plotTop-4)
		d.add(`<text x="%.1f" y="%d" class="small">%d requests arrive at once</text>`, x+9, plotTop-6, w.n)
	}
	d.label(svgWidth-24, plotTop-22, "soft small end", "most in")
	d.label(svgWidth-24, plotTop-6, "soft small end", "any second")
}

func (d *drawing) axis(bottom int) {
	for t := time.Duration(0); t <= d.plan.horizon; t += time.Second {
		d.add(`<line class="grid" x1="%.1[1]f" y1="%[2]d" x2="%.1[1]f" y2="%[3]d"/>`, d.x(t), plotTop, bottom+6)
		d.add(`<text x="%.1f" y="%d" class="soft small mid">%d s</text>`, d.x(t), bottom+22, int(t.Seconds()))
	}
}

func (d *drawing) pauses(r result, top int) {
	for _, e := range r.events {
		if e.kind != paused {
			continue
		}
		from, until := d.x(e.at), d.x(e.until)
		d.add(`<rect class="pause" x="%.1f" y="%d" width="%.1f" height="%d"/>`, from, top, until-from, laneHeight)
	}
}

func (d *drawing) lane(r result, top int) {
	all := r.grants(-1)
	d.add(`<g id="%s">`, r.lane.id)
	d.add(`<line class="edge" x1="24" y1="%d" x2="%d" y2="%[1]d"/>`, top, svgWidth-24)
	d.label(24, top+24, "name", r.lane.name)
	d.label(24, top+42, "soft small", r.lane.about)
	d.label(svgWidth-24, top+32, "end", strconv.Itoa(mostIn(time.Second, all)))
	for _, e := range r.events {
		switch e.kind {
		case refused:
			d.add(`<text x="%.1f" y="%d" class="notext small">refused</text>`, d.x(e.at)+4, top+16)
		case paused:
			d.add(`<text x="%.1f" y="%d" class="pausetext small mid">pause</text>`, (d.x(e.at)+d.x(e.until))/2, top+laneHeight/2+4)
		}
	}
	rows := max(len(r.lane.groups), 1)
	for group := range rows {
		height := float64(rowHeight) / float64(rows)
		base := float64(top+(laneHeight+rowHeight)/2) - height*float64(rows-1-group)
		if rows > 1 {
			d.add(`<text x="%d" y="%.1f" class="row end">%s</text>`, plotLeft-8, base-1, text(r.lane.groups[group]))
		}
		d.marks(r, group, base, height-2.5)
	}
	if waiting := d.plan.requests() - len(all); waiting > 0 {
		d.label(plotRight-4, top+16, "soft small end", fmt.Sprintf("%d still wait", waiting))
	}
	d.add(`</g>`)
}

// marks draws the grants of a group. Those that would lie on one another are one mark, the taller the more they are.
func (d *drawing) marks(r result, group int, base, height float64) {
	var column []event
	flush := func() {
		n := len(column)
		if n == 0 {
			return
		}
		class := fmt.Sprintf("g%d", group)
		for _, e := range column {
			if e.err != nil {
				class = "no"
			}
		}
		h := height // in a lane of several rows there is no room for more than one height
		if len(r.lane.groups) == 0 {
			h *= 0.5 + 0.5*min(float64(n-1)/9, 1)
		}
		x := d.x(column[0].at)
		d.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="0.8"/>`, class, x, base-h, markWidth, h)
		if n >= 3 && len(r.lane.groups) == 0 {
			d.add(`<text x="%.1f" y="%.1f" class="count">×%d</text>`, x+5, base-height+9, n)
		}
		column = column[:0]
	}
	for _, e := range r.events {
		if e.kind != granted || e.group != group {
			continue
		}
		if len(column) > 0 && (d.x(e.at)-d.x(column[0].at) > markWidth || (e.err != nil) != (column[0].err != nil)) {
			flush()
		}
		column = append(column, e)
	}
	flush()
}

// describe is the picture in words, for those who do not see it.
func describe(p plan, s settings, results []result) string {
	var b strings.Builder
	for i, w := range p.waves {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d requests arrive at %v", w.n, w.at)
	}
	fmt.Fprintf(&b, "; every limiter is asked for %d a second.", s.rate)
	for _, r := range results {
		all := r.grants(-1)
		fmt.Fprintf(&b, " %s (%s): %d granted", r.lane.name, r.lane.about, len(all))
		if len(all) > 0 {
			fmt.Fprintf(&b, ", the last at %.1f s, at most %d in any second", all[len(all)-1].Seconds(), mostIn(time.Second, all))
		}
		b.WriteString(".")
	}
	return b.String()
}

func text(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
