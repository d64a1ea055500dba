// Package chart draws curves as plain SVG: no script, no font, no colour that a dark page would hide.
package chart

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// A Chart is one picture. The vertical axis begins at zero.
type Chart struct {
	Title, X, Y string
	LogX        bool
	Lines       []Line
	Shade       *Span // part of the horizontal axis that is marked; may be nil
}

// A Span is from one value to another.
type Span struct {
	From, To float64
	Label    string
}

// A Line is a curve of points, from left to right.
type Line struct {
	Name   string
	Points []Point
}

// A Point has the least and the greatest value of its rounds; both are Y where there were none.
type Point struct{ X, Y, Low, High float64 }

const (
	width, height            = 720.0, 400.0
	left, right, top, bottom = 76.0, 20.0, 66.0, 56.0
)

var colours = []string{"#1f6fb4", "#c2570c", "#2e7d32", "#7b4397"}

// frame maps values to places in the picture.
type frame struct {
	chart      Chart
	x0, x1, y1 float64
}

func newFrame(c Chart) frame {
	f := frame{chart: c, x0: math.Inf(1), x1: math.Inf(-1)}
	for _, l := range c.Lines {
		for _, p := range l.Points {
			f.x0, f.x1, f.y1 = math.Min(f.x0, p.X), math.Max(f.x1, p.X), math.Max(f.y1, p.High)
		}
	}
	if !c.LogX {
		f.x0 = math.Min(f.x0, 0)
	}
	f.y1 = ceiling(f.y1)
	return f
}

// ceiling is the next round number.
func ceiling(x float64) float64 {
	if x <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10} {
		if x <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}

func (f frame) x(v float64) float64 {
	from, to := f.x0, f.x1
	if f.chart.LogX {
		v, from, to = math.Log10(v), math.Log10(from), math.Log10(to)
	}
	if from == to {
		return left
	}
	return left + (v-from)/(to-from)*(width-left-right)
}

func (f frame) y(v float64) float64 { return height - bottom - v/f.y1*(height-top-bottom) }

// Write draws the chart.
func (c Chart) Write(w io.Writer) error {
	f := newFrame(c)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s" font-family="sans-serif" font-size="13">`+"\n",
		width, height, html.EscapeString(c.Title))
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="#ffffff"/>`+"\n", width, height)
	label(&b, left, 22, "start", 15, c.Title)
	f.shade(&b)
	f.grid(&b)
	for i, l := range c.Lines {
		f.line(&b, l, colours[i%len(colours)])
		f.key(&b, i, l)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func label(b *strings.Builder, x, y float64, anchor string, size int, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="#222222">%s</text>`+"\n", x, y, anchor, size, html.EscapeString(text))
}

func (f frame) shade(b *strings.Builder) {
	s := f.chart.Shade
	if s == nil {
		return
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#eeeeee"/>`+"\n", f.x(s.From), top, f.x(s.To)-f.x(s.From), height-top-bottom)
	label(b, f.x(s.From)+6, top+16, "start", 12, s.Label)
}

const ticks = 5

func (f frame) grid(b *strings.Builder) {
	for i := range ticks + 1 {
		v := f.y1 * float64(i) / ticks
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f" stroke="#cccccc"/>`+"\n", left, f.y(v), width-right)
		label(b, left-8, f.y(v)+4, "end", 12, short(v))
	}
	for _, v := range f.xTicks() {
		fmt.Fprintf(b, `<path d="M%.1f %.1fv5" stroke="#666666"/>`+"\n", f.x(v), height-bottom)
		label(b, f.x(v), height-bottom+20, "middle", 12, short(v))
	}
	label(b, (left+width-right)/2, height-14, "middle", 13, f.chart.X)
	fmt.Fprintf(b, `<text transform="translate(18 %.1f) rotate(-90)" text-anchor="middle" fill="#222222">%s</text>`+"\n",
		(top+height-bottom)/2, html.EscapeString(f.chart.Y))
}

func (f frame) xTicks() []float64 {
	var list []float64
	if f.chart.LogX {
		for v := math.Pow(10, math.Ceil(math.Log10(f.x0)-1e-9)); v <= f.x1*1.0001; v *= 10 {
			list = append(list, v)
		}
		return list
	}
	step := ceiling((f.x1 - f.x0) / (2 * ticks))
	for v := 0.0; v <= f.x1; v += step {
		list = append(list, v)
	}
	return list
}

func (f frame) line(b *strings.Builder, l Line, colour string) {
	var path strings.Builder
	for i, p := range l.Points {
		fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], f.x(p.X), f.y(p.Y))
		if p.High > p.Low {
			fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="%s" stroke-opacity="0.45" stroke-width="3"/>`+"\n", f.x(p.X), f.y(p.Low), f.y(p.High), colour)
		}
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colour)
	if len(l.Points) > 40 {
		return
	}
	for _, p := range l.Points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", f.x(p.X), f.y(p.Y), colour)
	}
}

func (f frame) key(b *strings.Builder, i int, l Line) {
	x := left + float64(i)*(width-left-right)/float64(max(len(f.chart.Lines), 2))
	fmt.Fprintf(b, `<path d="M%.1f 44h24" stroke="%s" stroke-width="3"/>`+"\n", x, colours[i%len(colours)])
	label(b, x+30, 48, "start", 13, l.Name)
}

// short writes a number for an axis.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.4gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.4gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}
