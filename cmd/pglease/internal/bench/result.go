package bench

import (
	"context"
	"math"
	"slices"
	"time"
)

// A Result is what was measured. Rates are operations a second; times are in microseconds.
type Result struct {
	Work      string `json:"work"`
	Clients   int    `json:"clients"`
	Waiters   int    `json:"waiters"`
	Processes int    `json:"processes"`
	Direct    bool   `json:"direct_wake"`
	Leases    int    `json:"leases"`
	Rounds    int    `json:"rounds"`
	ForMS     int64  `json:"for_ms"`
	History   bool   `json:"history"`
	Server    string `json:"server"`
	Durable   bool   `json:"durable"` // fsync and synchronous_commit are on

	Rate      float64 `json:"rate"`
	LimitRate float64 `json:"limit_rate"`
	Ratio     float64 `json:"ratio"` // of the rates, median of the rounds
	RatioLow  float64 `json:"ratio_low"`
	RatioHigh float64 `json:"ratio_high"`

	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	LimitP50   float64 `json:"limit_p50_us"`
	LimitP99   float64 `json:"limit_p99_us"`
	Also       string  `json:"also,omitempty"` // what the rest of also_ is of
	AlsoRate   float64 `json:"also_rate,omitempty"`
	AlsoRatio  float64 `json:"also_ratio,omitempty"` // of also_rate to rate
	AlsoP50    float64 `json:"also_p50_us,omitempty"`
	AlsoP99    float64 `json:"also_p99_us,omitempty"`
	AlsoWAL    float64 `json:"also_wal_bytes_per_op,omitempty"`
	Statements float64 `json:"statements_per_op"`
	Trips      float64 `json:"round_trips_per_op"`
	WAL        float64 `json:"wal_bytes_per_op"`
	LimitWAL   float64 `json:"limit_wal_bytes_per_op"`

	work Work
}

func (s *stage) result(ctx context.Context, work Work, all []*series) (Result, error) {
	ours, limit := all[0], all[1]
	o := s.options
	compared := ratios(ours, limit)
	r := Result{
		Work: work.Name, Clients: o.Clients, Waiters: o.Waiters, Processes: o.Processes, Direct: o.DirectWake, Leases: o.Leases, Rounds: o.Rounds,
		ForMS: o.For.Milliseconds(), History: !o.NoHistory, Server: s.server.Source(), work: work,
		Rate: rounded(median(ours.rates), 1), LimitRate: rounded(median(limit.rates), 1),
		Ratio: rounded(median(compared), 3), RatioLow: rounded(slices.Min(compared), 3), RatioHigh: rounded(slices.Max(compared), 3),
		P50: ours.quantile(0.5), P99: ours.quantile(0.99), LimitP50: limit.quantile(0.5), LimitP99: limit.quantile(0.99),
		Statements: rounded(float64(ours.spent.statements)/float64(ours.ops), 4),
		Trips:      rounded(float64(ours.spent.trips)/float64(ours.ops), 4),
		WAL:        ours.walEach(),
		LimitWAL:   limit.walEach(),
	}
	if len(all) > 2 {
		r.Also, r.AlsoRate, r.AlsoP50 = work.also, rounded(median(all[2].rates), 1), all[2].quantile(0.5)
		r.AlsoP99, r.AlsoWAL = all[2].quantile(0.99), all[2].walEach()
		r.AlsoRatio = rounded(median(ratios(all[2], ours)), 3)
	}
	err := s.control.QueryRow(ctx, `SELECT current_setting('fsync') = 'on' AND current_setting('synchronous_commit') NOT IN ('off', 'local')`).Scan(&r.Durable)
	return r, err
}

// ratios compares round by round, so that a disturbance of some rounds falls out with the median.
func ratios(ours, limit *series) []float64 {
	list := make([]float64, len(ours.rates))
	for i, rate := range ours.rates {
		list[i] = rate / limit.rates[i]
	}
	return list
}

// median of at least one.
func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func (s *series) walEach() float64 { return rounded(float64(s.spent.wal)/float64(s.ops), 1) }

// quantile is in microseconds.
func (s *series) quantile(q float64) float64 {
	slices.Sort(s.latencies)
	rank := int(math.Ceil(q*float64(len(s.latencies)))) - 1
	return rounded(float64(s.latencies[max(rank, 0)])/float64(time.Microsecond), 1)
}

func rounded(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}
