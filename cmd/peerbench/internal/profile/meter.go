package profile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
)

// A meter counts what operations cost.
type meter struct {
	control *pgx.Conn // to ask where the WAL ends
	off     bool      // while loads run unrecorded
	ops     map[string]int
	round   map[string][]figure // of each time that a row was measured in this round
	rounds  map[string][]figure // of each round, their medians
}

// figure is what one operation of a row costs.
type figure struct {
	server, client, wal float64 // microseconds, microseconds, bytes
	partial             bool    // only the server's time is known
}

func (f figure) both() float64 { return f.server + f.client }

// A share is the row to which the time of some of the server's processes goes.
type share struct {
	row  string
	pids []uint32
}

// measure does some operations and takes down what they cost: the client's time and the WAL go to the first of
// the shares, unless it is partial; f tells how many operations there were.
func (m *meter) measure(ctx context.Context, f func() (int, error), partial bool, shares ...share) error {
	before, err := m.look(ctx, shares)
	if err != nil {
		return err
	}
	client, err := spentHere()
	if err != nil {
		return err
	}
	n, err := f()
	if err != nil {
		return fmt.Errorf("%s: %w", shares[0].row, err)
	}
	clientAfter, err := spentHere()
	if err != nil {
		return err
	}
	after, err := m.look(ctx, shares)
	if err != nil || m.off {
		return err
	}
	for i, s := range shares {
		fig := figure{server: each(after.server[i]-before.server[i], n), partial: partial || i > 0}
		if i == 0 {
			fig.client, fig.wal = each(clientAfter-client, n), float64(after.wal-before.wal)/float64(n)
		}
		m.round[s.row] = append(m.round[s.row], fig)
		m.ops[s.row] += n
	}
	return nil
}

func each(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(n) }

// times measures n operations of one row, which one process of the server serves.
func (m *meter) times(ctx context.Context, row string, pid uint32, n int, op func(i int) error) error {
	return m.measure(ctx, func() (int, error) {
		for i := range n {
			if err := op(i); err != nil {
				return 0, err
			}
		}
		return n, nil
	}, false, share{row, []uint32{pid}})
}

// sight is what has been spent up to a moment in which the server's processes sleep.
type sight struct {
	server []time.Duration // by share
	wal    int64
}

func (m *meter) look(ctx context.Context, shares []share) (s sight, err error) {
	for _, share := range shares {
		var sum time.Duration
		for _, pid := range share.pids {
			if err := awaitSleep(ctx, pid); err != nil {
				return s, fmt.Errorf("%s: %w", share.row, err)
			}
			t, err := spentBy(pid)
			if err != nil {
				return s, fmt.Errorf("%s: %w", share.row, err)
			}
			sum += t
		}
		s.server = append(s.server, sum)
	}
	err = m.control.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&s.wal)
	return s, err
}

// endRound makes one figure of each row of those that the round has. A median passes over what befell the
// machine now and then.
func (m *meter) endRound() {
	for name, list := range m.round {
		m.rounds[name] = append(m.rounds[name], figure{
			server:  medianOf(list, func(f figure) float64 { return f.server }),
			client:  medianOf(list, func(f figure) float64 { return f.client }),
			wal:     medianOf(list, func(f figure) float64 { return f.wal }),
			partial: list[0].partial,
		})
	}
	clear(m.round)
}

func medianOf(list []figure, of func(figure) float64) float64 {
	column := make([]float64, len(list))
	for i, f := range list {
		column[i] = of(f)
	}
	return measure.Median(column)
}
