package growth

import (
	"fmt"
	"strings"
)

// Text returns the points as a table. Of a curve over time only some are in it.
func (c Curve) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s%12s%12s%9s%12s%12s\n", c.X, "a second", "limit", "× limit", "p50", "p99")
	for _, p := range c.some() {
		fmt.Fprintf(&b, "%-24.0f%12.0f%12.0f%9.2f%9.2f ms%9.2f ms\n", p.X, p.Rate, p.Limit, p.Ratio, p.P50/1000, p.P99/1000)
	}
	return b.String()
}

// Markdown returns the same for a document.
func (c Curve) Markdown() string {
	var b strings.Builder
	limit := c.Limit
	if c.LimitBy != "" {
		limit += ", " + c.LimitBy
	}
	fmt.Fprintf(&b, "%s, beside %s.\n\n", c.Unit, limit)
	fmt.Fprintf(&b, "| %s | a second | limit | × limit | p50 | p99 |\n|---:|---:|---:|---:|---:|---:|\n", c.X)
	for _, p := range c.some() {
		fmt.Fprintf(&b, "| %.0f | %.0f | %.0f | %.2f | %.2f ms | %.2f ms |\n", p.X, p.Rate, p.Limit, p.Ratio, p.P50/1000, p.P99/1000)
	}
	return b.String()
}

const most = 12

func (c Curve) some() []Point {
	step := (len(c.Points) + most - 1) / most
	if step <= 1 {
		return c.Points
	}
	var list []Point
	for i := 0; i < len(c.Points); i += step {
		list = append(list, c.Points[i])
	}
	return list
}
