package contest

import (
	"fmt"
	"slices"

	"github.com/pglease/pglease/cmd/peerbench/internal/grid"
)

// tables returns the figures, in the order in which they were measured.
func (r Result) tables() []grid.Table {
	var list []grid.Table
	for _, work := range Works() {
		for _, n := range r.sizes(work) {
			list = append(list, r.table(work, n))
		}
	}
	if len(r.Takeovers) > 0 {
		list = append(list, r.takeoverTable())
	}
	return list
}

func (r Result) sizes(work string) []int {
	var sizes []int
	for _, c := range r.Cells {
		if c.Work == work && !slices.Contains(sizes, c.N) {
			sizes = append(sizes, c.N)
		}
	}
	return sizes
}

func (r Result) table(work string, n int) grid.Table {
	t := grid.Table{Title: title(work, n), Note: notes[work], Head: []string{"", "a second", "over rounds", "× limit", "over rounds", "p50", "p99", "requests"}}
	if work == HandOver {
		t.Head = append(t.Head, "to another")
	}
	for _, c := range r.Cells {
		if c.Work != work || c.N != n {
			continue
		}
		row := []string{
			c.Title, number(c.Rate), number(c.RateLow) + "–" + number(c.RateHigh),
			fmt.Sprintf("%.2f", c.Ratio), fmt.Sprintf("%.2f–%.2f", c.RatioLow, c.RatioHigh),
			duration(c.P50), duration(c.P99), optional(c.Requests, "%.3g", 1),
		}
		if c.Peer == limitName {
			row[3], row[4] = "limit", ""
		}
		if work == HandOver {
			row = append(row, optional(c.Moved, "%.0f %%", 100))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

const limitName = "limit"

func title(work string, n int) string {
	switch work {
	case Pairs:
		return fmt.Sprintf("Pairs, %s: acquire and release a resource of one's own", grid.Count(n, "client"))
	case HandOver:
		return fmt.Sprintf("Hand-over, %s for one resource, each as in a process of its own", grid.Count(n, "contender"))
	case Renew:
		return fmt.Sprintf("Renewals, one client with %s", grid.Count(n, "lock"))
	}
	return fmt.Sprintf("Jobs, claim and complete, %s", grid.Count(n, "worker"))
}

var notes = map[string]string{
	HandOver: "A hand-over is a grant to another contender than the last holder; p50 and p99 are from the call of the release until the other has it. \"To another\" is their share of all grants: where it is low, whoever releases mostly gets the resource again while others wait. NOTIFY alone is sessions that pass a token on and keep nothing: what telling a waiter costs on Postgres by itself. Before version 19 each notification wakes all sessions of the database that listen, so it costs the more the more of them wait. With direct wake, a session that was served within the last second waits in the server and is woken there alone, without a notification: that costs up to a statement more for a hand-over, and a snapshot that each such session keeps for up to a second.",
	Renew:    "pglease renews up to 500 leases in one statement; p50 and p99 are of a whole statement. etcd and ZooKeeper renew a session with all of its locks and write nothing; ZooKeeper's client does it by itself and has no call for it, and an advisory lock needs none. River renews its leader alone.",
	Jobs:     "A job of a River client or of Run counts when its work is done; p50 and p99 are of one claim with its completion.",
}

func (r Result) takeoverTable() grid.Table {
	t := grid.Table{
		Title: "Takeover: from the SIGKILL of the holder's process until a waiting process has the lock",
		Note:  "A killed process closes its connections. Where a whole host is gone nothing closes them, and an advisory lock stays until TCP gives up.",
		Head:  []string{"", "TTL", "median", "least", "most"},
	}
	for _, k := range r.Takeovers {
		t.Rows = append(t.Rows, []string{k.Title, duration(k.TTL * 1000), duration(k.Median * 1000), duration(k.Least * 1000), duration(k.Most * 1000)})
	}
	return t
}

// facts are what each peer does and does not do.
func (r Result) facts() grid.Table {
	t := grid.Table{Title: "What each of them does and does not do", Words: true, Head: []string{"", "Fence", "Who is next", "How a waiter learns", "Durable", "A renewal keeps", "Does not do"}}
	for _, p := range r.Peers {
		t.Rows = append(t.Rows, []string{p.Title, p.Fence, p.Order, p.Wakes, p.Durable, p.Renews, p.Lacks})
	}
	return t
}

func duration(us float64) string {
	switch {
	case us == 0:
		return "–"
	case us < 1_000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 100_000:
		return fmt.Sprintf("%.1f ms", us/1_000)
	case us < 10_000_000:
		return fmt.Sprintf("%.0f ms", us/1_000)
	}
	return fmt.Sprintf("%.1f s", us/1_000_000)
}

func number(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

func optional(x *float64, format string, scale float64) string {
	if x == nil {
		return "–"
	}
	return fmt.Sprintf(format, *x*scale)
}
