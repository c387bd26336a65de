package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-analyze/charts"
)

// A panel is a group of which the chart shows the ratios.
type panel struct{ group, title string }

func panels() []panel {
	return []panel{
		{"batch/no-op/8", "Ordered batch"},
		{"stream/no-op/8", "Stream, in order of completion"},
		{"ordered/no-op/8", "Stream, in input order"},
	}
}

const (
	chartWidth = 860
	barHeight  = 24
	headHeight = 52
)

// chart draws how many times as long as the baseline everybody takes, as an SVG. It is nil when nothing of it was measured.
func chart(all results) ([]byte, error) {
	var shown []*result
	var titles []string
	height := 0
	for _, p := range panels() {
		if r := all.find(p.group); r != nil && len(r.samples[r.baseline]) > 0 {
			shown = append(shown, r)
			titles = append(titles, p.title)
			height += panelHeight(r)
		}
	}
	if len(shown) == 0 {
		return nil, nil
	}
	p := charts.NewPainter(charts.PainterOptions{
		OutputFormat: charts.ChartOutputSVG, Width: chartWidth, Height: height, Theme: lightTheme(),
	})
	top := 0
	for i, r := range shown {
		bottom := top + panelHeight(r)
		child := p.Child(charts.PainterBoxOption(charts.NewBox(0, top, chartWidth, bottom)))
		if err := child.BarChart(bars(r, titles[i])); err != nil {
			return nil, err
		}
		top = bottom
	}
	svg, err := p.Bytes()
	return withDarkMode(svg), err
}

func panelHeight(r *result) int { return headHeight + barHeight*len(r.contenders) }

// bars is one panel. Penstock, what is by hand and the peers are three series stacked on each other, of which each contender
// has a value in one: so that they have colours of their own.
func bars(r *result, title string) charts.BarChartOption {
	var names []string
	series := make([][]float64, 3)
	for i := len(r.contenders) - 1; i >= 0; i-- { // drawn from the bottom up
		name := r.contenders[i].name
		names = append(names, name)
		for s := range series {
			v := 0.0
			if s == seriesOf(name) {
				v = r.ratio(name, r.baseline).median
			}
			series[s] = append(series[s], v)
		}
	}
	opt := charts.NewBarChartOptionWithData(series)
	opt.Theme = lightTheme()
	opt.Horizontal = true
	opt.StackSeries = charts.Ptr(true)
	opt.Padding = charts.NewBox(12, 10, 48, 10)
	opt.Title = charts.TitleOption{
		Text:      fmt.Sprintf("%s: time per item, 1 × = %s", title, showTime(r.median(r.baseline, value))),
		FontStyle: font(12),
	}
	opt.Legend.Show = charts.Ptr(false)
	opt.ValueAxis[0].Show = charts.Ptr(false)
	opt.CategoryAxis.Labels = names
	opt.CategoryAxis.LabelFontStyle = font(9)
	for i := range opt.SeriesList {
		opt.SeriesList[i].Label = charts.SeriesLabel{
			Show: charts.Ptr(true), ValueFormatter: barLabel, FontStyle: font(9),
		}
	}
	return opt
}

// barLabel is empty for the two series in which a contender has no value.
func barLabel(v float64) string {
	if v == 0 {
		return ""
	}
	return significant(v) + " ×"
}

func ink() charts.Color { return charts.ColorRGB(31, 35, 40) }

// font has its colour set: left to itself the library picks one that goes with the colour of the bar.
func font(size float64) charts.FontStyle { return charts.FontStyle{FontSize: size, FontColor: ink()} }

// lightTheme has a colour for each role, so that withDarkMode can tell them apart.
func lightTheme() charts.ColorPalette {
	ink := ink()
	faint := charts.ColorRGB(208, 215, 222)
	return charts.MakeTheme(charts.ThemeOption{
		AxisStrokeColor: faint, AxisSplitLineColor: faint, BackgroundColor: charts.ColorTransparent,
		TextColor: ink, TextColorTitle: ink, TextColorLabel: ink, TextColorXAxis: ink, TextColorYAxis: ink, TextColorMark: ink,
		SeriesColors: []charts.Color{charts.ColorRGB(9, 105, 218), charts.ColorRGB(110, 119, 129), charts.ColorRGB(191, 135, 0)},
	})
}

// withDarkMode adds a style for readers whose page is dark, which wins over the colours that the elements bring along,
// and a title for those who cannot see the picture.
func withDarkMode(svg []byte) []byte {
	const head = `<title>Time per item beside what is written by hand</title>
<style>
svg { color-scheme: light dark }
@media (prefers-color-scheme: dark) {
  [style*="fill:rgb(31,35,40)"] { fill: #e6edf3 !important }
  [style*="stroke:rgb(208,215,222)"] { stroke: #3d444d !important }
  [style*="fill:rgb(9,105,218)"] { fill: #4493f8 !important }
  [style*="fill:rgb(110,119,129)"] { fill: #9198a1 !important }
  [style*="fill:rgb(191,135,0)"] { fill: #d29922 !important }
}
</style>
`
	open := bytes.IndexByte(svg, '>') + 1
	return slices.Concat(svg[:open], []byte("\n"+head), svg[open:])
}

func seriesOf(name string) int {
	switch {
	case strings.HasPrefix(name, "Penstock"):
		return 0
	case strings.HasPrefix(name, "by hand"):
		return 1
	}
	return 2
}
