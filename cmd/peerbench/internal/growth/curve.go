package growth

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/chart"
	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// A Curve is what was measured of one work.
type Curve struct {
	Name    string  `json:"name"`
	Title   string  `json:"title"`
	X       string  `json:"x"` // what grows
	Unit    string  `json:"unit"`
	Limit   string  `json:"limit"`              // what is run beside it
	LimitBy string  `json:"limit_by,omitempty"` // by whom, where the limit's name does not say
	Server  string  `json:"server"`
	Rounds  int     `json:"rounds"`
	ForMS   int64   `json:"for_ms"`
	Points  []Point `json:"points"`
	OpenAt  float64 `json:"snapshot_opened_s,omitempty"`
	CloseAt float64 `json:"snapshot_closed_s,omitempty"`

	latency bool // its picture shows latencies, not rates
}

// A Point is one size, or one moment in seconds.
type Point struct {
	X         float64 `json:"x"`
	Rate      float64 `json:"rate"`
	RateLow   float64 `json:"rate_low"`
	RateHigh  float64 `json:"rate_high"`
	Limit     float64 `json:"limit_rate"`
	LimitLow  float64 `json:"limit_rate_low"`
	LimitHigh float64 `json:"limit_rate_high"`
	Ratio     float64 `json:"ratio"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	LimitP50  float64 `json:"limit_p50_us"`
	Bytes     int64   `json:"table_bytes"` // of the table of leases, with its indexes
}

func pointOf(x float64, ours, limit *measure.Series) Point {
	return Point{
		X: x, Rate: measure.Median(ours.Rates), RateLow: slices.Min(ours.Rates), RateHigh: slices.Max(ours.Rates),
		Limit: measure.Median(limit.Rates), LimitLow: slices.Min(limit.Rates), LimitHigh: slices.Max(limit.Rates),
		Ratio: measure.Median(ours.Ratios(limit)),
		P50:   micros(ours.Quantile(0.5)), P99: micros(ours.Quantile(0.99)), LimitP50: micros(limit.Quantile(0.5)),
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// Write puts the picture and the numbers into a directory.
func (c Curve) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	numbers, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, c.Name+".json"), append(numbers, '\n'), 0o644); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, c.Name+".svg"))
	if err != nil {
		return err
	}
	return errors.Join(c.chart().Write(file), file.Close())
}

// Read returns the curves whose numbers are in a directory, in the order of Works.
func Read(dir string) (curves []Curve, err error) {
	for _, work := range Works() {
		numbers, err := os.ReadFile(filepath.Join(dir, work+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var c Curve
		if err := json.Unmarshal(numbers, &c); err != nil {
			return nil, err
		}
		curves = append(curves, c)
	}
	return curves, nil
}

func (c Curve) chart() chart.Chart {
	picture := chart.Chart{Title: c.Title, X: c.X, Y: "a second", LogX: true}
	ours, limit := chart.Line{Name: c.Unit}, chart.Line{Name: c.Limit}
	for _, p := range c.Points {
		ours.Points = append(ours.Points, chart.Point{X: p.X, Y: p.Rate, Low: p.RateLow, High: p.RateHigh})
		limit.Points = append(limit.Points, chart.Point{X: p.X, Y: p.Limit, Low: p.LimitLow, High: p.LimitHigh})
	}
	picture.Lines = []chart.Line{ours, limit}
	if c.CloseAt > 0 {
		picture.LogX = false
		picture.Shade = &chart.Span{From: c.OpenAt, To: c.CloseAt, Label: "snapshot open"}
	}
	if c.latency {
		picture.Y = "milliseconds"
		picture.Lines = c.latencies()
	}
	return picture
}

func (c Curve) latencies() []chart.Line {
	p50, p99, limit := chart.Line{Name: c.Unit + ", p50"}, chart.Line{Name: c.Unit + ", p99"}, chart.Line{Name: c.Limit + ", p50"}
	at := func(l *chart.Line, x, us float64) {
		l.Points = append(l.Points, chart.Point{X: x, Y: us / 1000, Low: us / 1000, High: us / 1000})
	}
	for _, p := range c.Points {
		at(&p50, p.X, p.P50)
		at(&p99, p.X, p.P99)
		at(&limit, p.X, p.LimitP50)
	}
	return []chart.Line{p50, p99, limit}
}
