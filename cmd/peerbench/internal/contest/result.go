package contest

import (
	"math"
	"slices"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
)

// A Result is what was measured. Rates are operations a second, medians over the rounds; low and
// high are the least and the greatest of a round. Latencies are of all rounds together.
type Result struct {
	Cores   int      `json:"cores"`
	Go      string   `json:"go"`
	Rounds  int      `json:"rounds"`
	ForMS   int64    `json:"for_ms"`
	Seconds float64  `json:"seconds"`
	Servers []Server `json:"servers"`
	Missing []string `json:"missing"` // peers that were asked for and are not on this machine
	Peers   []Peer   `json:"peers"`

	Cells     []Cell           `json:"cells"`
	Takeovers []TakeoverResult `json:"takeovers"`
}

// A Server is what peers ran on.
type Server struct {
	Kind  string `json:"kind"`
	About string `json:"about"`
}

// A Peer is what the table says of one.
type Peer struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Fence   string `json:"fence"`
	Order   string `json:"order"`
	Wakes   string `json:"wakes"`
	Durable string `json:"durable"`
	Renews  string `json:"renews"`
	Lacks   string `json:"lacks"`
	Modules string `json:"modules"`
}

func factsOf(p peers.Peer) Peer {
	f := p.Facts
	return Peer{
		Name: p.Name, Title: p.Title, Fence: f.Fence, Order: f.Order, Wakes: f.Wakes, Durable: f.Durable,
		Renews: f.Renews, Lacks: f.Lacks, Modules: f.Packages,
	}
}

// A Cell is one peer at one work of one size.
type Cell struct {
	Work  string `json:"work"`
	N     int    `json:"n"`
	Peer  string `json:"peer"`
	Title string `json:"title"`

	Rate      float64  `json:"rate"`
	RateLow   float64  `json:"rate_low"`
	RateHigh  float64  `json:"rate_high"`
	Ratio     float64  `json:"ratio"` // to the limit, round by round
	RatioLow  float64  `json:"ratio_low"`
	RatioHigh float64  `json:"ratio_high"`
	P50       float64  `json:"p50_us"` // 0 where nothing was timed
	P99       float64  `json:"p99_us"`
	Requests  *float64 `json:"requests_per_op"`
	Moved     *float64 `json:"moved"` // hand-overs: share of grants that went to another
}

func cellOf(work string, n int, title string, s, limit *measure.Series) Cell {
	ratios := s.Ratios(limit)
	return Cell{
		Work: work, N: n, Peer: s.Name, Title: title,
		Rate: rounded(measure.Median(s.Rates), 1), RateLow: rounded(slices.Min(s.Rates), 1), RateHigh: rounded(slices.Max(s.Rates), 1),
		Ratio: rounded(measure.Median(ratios), 3), RatioLow: rounded(slices.Min(ratios), 3), RatioHigh: rounded(slices.Max(ratios), 3),
		P50: micros(s.Quantile(0.5)), P99: micros(s.Quantile(0.99)),
		Requests: known(s.Requests(), 3), Moved: known(s.Moved(), 3),
	}
}

// A TakeoverResult is how long it took until a waiter had the lock of a holder that was killed.
type TakeoverResult struct {
	Peer   string  `json:"peer"`
	Title  string  `json:"title"`
	TTL    float64 `json:"ttl_ms"`
	Median float64 `json:"median_ms"`
	Least  float64 `json:"least_ms"`
	Most   float64 `json:"most_ms"`
	Rounds int     `json:"rounds"`
}

func takeoverOf(p peers.Peer, ttl time.Duration, took []time.Duration) TakeoverResult {
	ms := make([]float64, len(took))
	for i, d := range took {
		ms[i] = float64(d) / float64(time.Millisecond)
	}
	return TakeoverResult{
		Peer: p.Name, Title: p.Title, TTL: float64(ttl.Milliseconds()), Median: rounded(measure.Median(ms), 1),
		Least: rounded(slices.Min(ms), 1), Most: rounded(slices.Max(ms), 1), Rounds: len(took),
	}
}

func micros(d time.Duration) float64 { return rounded(float64(d)/float64(time.Microsecond), 1) }

func rounded(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

func known(x float64, digits int) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	r := rounded(x, digits)
	return &r
}
