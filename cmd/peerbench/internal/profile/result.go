package profile

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/pglease/pglease/cmd/peerbench/internal/grid"
	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// A Result is what was measured. Times are of the processor, in microseconds, and medians over the rounds, as
// bytes are; low and high are the least and the greatest of a round.
type Result struct {
	Cores      int          `json:"cores"`
	Go         string       `json:"go"`
	Server     string       `json:"server"`
	Rounds     int          `json:"rounds"`
	ForMS      int64        `json:"for_ms"`
	Seconds    float64      `json:"seconds"`
	LoadBefore float64      `json:"load_before"` // the machine's load average
	LoadAfter  float64      `json:"load_after"`
	Rows       []Row        `json:"rows"`
	Beside     []Comparison `json:"beside_limit"`
}

// A Row is what one operation costs.
type Row struct {
	Work       string   `json:"work"`
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	Operations int      `json:"operations"` // how many were measured
	Server     float64  `json:"server_us"`
	ServerLow  float64  `json:"server_low_us"`
	ServerHigh float64  `json:"server_high_us"`
	Client     *float64 `json:"client_us"`    // nil where nobody's time is known but the server's
	WAL        *float64 `json:"wal_bytes"`    // nil likewise
	ToUpdate   *float64 `json:"times_update"` // both times, to those of UPDATEs that ran in between
}

// A Comparison is what operations cost beyond their limit.
type Comparison struct {
	Title  string  `json:"title"`
	Limit  string  `json:"limit"`
	Server float64 `json:"server_us"`
	Client float64 `json:"client_us"`
	WAL    float64 `json:"wal_bytes"`
	// Ratio is the limit's processor time to theirs: about what a rate comes to, in limits, where the processors
	// are what both wait for.
	Ratio float64 `json:"ratio"`
	// Shared is the same without the sync of each commit, which many clients share: with them it comes nearer to
	// this. nil where it is not known.
	Shared *float64 `json:"ratio_syncs_shared"`
}

func (s *stage) result(r Result) Result {
	for _, row := range s.rows {
		r.Rows = append(r.Rows, s.measured(row))
	}
	r.Beside = s.comparisons()
	return r
}

func (s *stage) measured(row Row) Row {
	figures := s.meter.rounds[row.Name]
	row.Operations = s.meter.ops[row.Name]
	server := func(f figure) float64 { return f.server }
	byTime := func(a, b figure) int { return cmp.Compare(a.server, b.server) }
	row.Server = rounded(medianOf(figures, server))
	row.ServerLow, row.ServerHigh = rounded(slices.MinFunc(figures, byTime).server), rounded(slices.MaxFunc(figures, byTime).server)
	if !figures[0].partial {
		row.Client = known(medianOf(figures, func(f figure) float64 { return f.client }))
		row.WAL = known(medianOf(figures, func(f figure) float64 { return f.wal }))
		row.ToUpdate = known(medianOver(figures, s.meter.rounds[updateBeside(row.Work)], func(f, update figure) float64 { return f.both() / update.both() }))
	}
	return row
}

func (r Result) row(name string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

// compared are operations, and so many times the row that is their limit.
var compared = []struct {
	title, limit string
	ours         []string
	bare         string
	times        float64
	syncs        float64 // of ours; the limit has one each. -1: not known
}{
	{"acquire and release", "two UPDATEs", []string{"acquire", "release"}, update, 2, 2},
	{"acquire and release, history off", "two UPDATEs", []string{"acquire-nohistory", "release-nohistory"}, update, 2, 2},
	{"refused TryAcquire, again", "an UPDATE", []string{"refused-again"}, update, 1, 0},
	{"SELECT of a row", "an UPDATE", []string{"select"}, update, 1, 0},
	{fmt.Sprintf("Renew of %d leases", fullBatch), fmt.Sprintf("%d UPDATEs", fullBatch), []string{"renew-500"}, update, fullBatch, 1},
	{"hand-over: join, release, and the waiter's sessions", "an UPDATE", []string{"join", "release-awaited", "told"}, update, 1, -1},
	{"transaction with Lease.Guard", "the transaction bare", []string{"guard"}, "transaction", 1, 1},
	{"GuardedTx", "the transaction bare", []string{"guardedtx"}, "transaction", 1, 1},
	{"Publish", "plain UPDATE of the same table", []string{"publish"}, "reports", 1, 1},
	{"Claim and Complete", "two UPDATEs", []string{"claim", "complete"}, update, 2, 2},
	{"CompleteAndClaim", "two UPDATEs", []string{"complete-claim"}, update, 2, 1},
}

// comparisons are of rows that were all measured, round by round.
func (s *stage) comparisons() []Comparison {
	var list []Comparison
	for _, c := range compared {
		if c.bare == update {
			c.bare = updateBeside(s.workOf(c.ours[0]))
		}
		ours, bare := s.sums(c.ours, 1), s.sums([]string{c.bare}, c.times)
		if ours == nil || bare == nil {
			continue
		}
		list = append(list, Comparison{
			Title: c.title, Limit: c.limit,
			Server: rounded(medianOver(ours, bare, func(ours, bare figure) float64 { return ours.server - bare.server })),
			Client: rounded(medianOver(ours, bare, func(ours, bare figure) float64 { return ours.client - bare.client })),
			WAL:    rounded(medianOver(ours, bare, func(ours, bare figure) float64 { return ours.wal - bare.wal })),
			Ratio:  *known(medianOver(ours, bare, func(ours, bare figure) float64 { return bare.both() / ours.both() })),
		})
		if sync := s.sync(); sync > 0 && c.syncs >= 0 {
			list[len(list)-1].Shared = known(medianOver(ours, bare, func(ours, bare figure) float64 {
				return (bare.both() - c.times*sync) / (ours.both() - c.syncs*sync)
			}))
		}
	}
	return list
}

// medianOver is that of what each round makes of two rows.
func medianOver(a, b []figure, of func(a, b figure) float64) float64 {
	each := make([]float64, len(a))
	for i := range a {
		each[i] = of(a[i], b[i])
	}
	return measure.Median(each)
}

func (s *stage) workOf(row string) string {
	for _, r := range s.rows {
		if r.Name == row {
			return r.Work
		}
	}
	return limit
}

// sync is what the sync of a commit costs the server's process; 0 where it was not measured.
func (s *stage) sync() float64 {
	server := func(f figure) float64 { return f.server }
	on, off := s.meter.rounds[syncedName], s.meter.rounds[unsyncedName]
	if len(on) == 0 || len(off) == 0 {
		return 0
	}
	return max(medianOf(on, server)-medianOf(off, server), 0)
}

// sums adds rows up, for each round; nil where one was not measured.
func (s *stage) sums(names []string, times float64) []figure {
	sums := make([]figure, s.Rounds)
	for _, name := range names {
		rounds := s.meter.rounds[name]
		if len(rounds) == 0 {
			return nil
		}
		for i, f := range rounds {
			sums[i].server += times * f.server
			sums[i].client += times * f.client
			sums[i].wal += times * f.wal
		}
	}
	return sums
}

func rounded(x float64) float64 { return math.Round(10*x) / 10 }

func known(x float64) *float64 {
	x = math.Round(100*x) / 100
	return &x
}

func (r Result) how() string {
	return fmt.Sprintf("%s, %s. %s of %d ms each, in turn; medians over the rounds. × UPDATE is both times, to those of UPDATEs that ran in between. It took %.0f s; the load average was %.1f at its begin and %.1f at its end.",
		grid.Count(r.Cores, "core"), r.Go, grid.Count(r.Rounds, "round"), r.ForMS, r.Seconds, r.LoadBefore, r.LoadAfter)
}
