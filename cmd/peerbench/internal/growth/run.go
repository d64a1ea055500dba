package growth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

// Options say what is measured.
type Options struct {
	Works     []string // empty: all
	For       time.Duration
	Rounds    int
	Resources int           // the most
	Waiters   int           // the most
	History   int           // rows, the most
	Leases    int           // of one client, the most
	Snapshot  time.Duration // for how long one is held open
	Notice    io.Writer
}

// Works returns the names of what can be measured, in the order in which it is.
func Works() []string { return []string{"resources", "waiters", "leases", "snapshot", "history"} }

// Check returns all problems together.
func (o Options) Check() error {
	var errs []error
	for _, work := range o.Works {
		if !slices.Contains(Works(), work) {
			errs = append(errs, fmt.Errorf("there is no work %q, only %s", work, strings.Join(Works(), ", ")))
		}
	}
	for _, bound := range []struct {
		what           string
		n, least, most int
	}{
		{"resources", o.Resources, leastRows, 100_000_000},
		{"waiters", o.Waiters, 1, 10_000},
		{"history", o.History, leastRows, 100_000_000},
		{"leases", o.Leases, 10, 100_000},
		{"rounds", o.Rounds, 1, 1000},
	} {
		if bound.n < bound.least || bound.n > bound.most {
			errs = append(errs, fmt.Errorf("%s %d is not between %d and %d", bound.what, bound.n, bound.least, bound.most))
		}
	}
	if o.For < 10*time.Millisecond || o.For > time.Minute {
		errs = append(errs, fmt.Errorf("for %v is not between 10ms and 1m", o.For))
	}
	if o.Snapshot < 4*o.For || o.Snapshot > time.Hour {
		errs = append(errs, fmt.Errorf("snapshot %v is not between four times --for and 1h", o.Snapshot))
	}
	return errors.Join(errs...)
}

const (
	clients   = 8 // of pairs
	processes = 8 // over which those who wait are spread
	leastRows = 1000
)

// stage is where a run takes place.
type stage struct {
	Options
	server  servers.Server
	control *pgxpool.Pool
}

// Run measures, on a Postgres of its own, and hands out each curve when it is done.
func Run(ctx context.Context, o Options, done func(Curve) error) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	set, pg, err := servers.Start(ctx, 200)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Stop()) }()
	s := &stage{Options: o, server: pg}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer s.control.Close()
	measured := map[string]func(context.Context, *Curve) error{
		"resources": s.resources, "waiters": s.waiters, "leases": s.leases, "snapshot": s.snapshot, "history": s.history,
	}
	for _, name := range Works() {
		if len(o.Works) > 0 && !slices.Contains(o.Works, name) {
			continue
		}
		c := Curve{Name: name, Server: pg.About, Rounds: o.Rounds, ForMS: o.For.Milliseconds()}
		if err := measured[name](ctx, &c); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := done(c); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) prepare(ctx context.Context) error {
	pgleases, _ := peers.ByName("pglease")
	if err := pgleases.Prepare(ctx, s.server.Address); err != nil {
		return err
	}
	var err error
	s.control, err = peers.Pool(ctx, s.server.Address, 2, &measure.Counter{})
	return err
}

// measure adds a point: ours beside the limit.
func (s *stage) measure(ctx context.Context, c *Curve, x int, ours, limit measure.Load) error {
	fmt.Fprintf(s.Notice, "%s: %d\n", c.Name, x)
	all, err := measure.Rounds(ctx, []measure.Load{ours, limit}, s.Rounds, s.For)
	if err != nil {
		return err
	}
	p := pointOf(float64(x), all[0], all[1])
	p.Bytes, err = s.tableBytes(ctx)
	c.Points = append(c.Points, p)
	return err
}

func (s *stage) tableBytes(ctx context.Context) (n int64, err error) {
	err = s.control.QueryRow(ctx, "SELECT pg_total_relation_size('"+peers.HistorySchema+".resource_lease')").Scan(&n)
	return n, err
}

// tenfold returns 1, 10, 100 ... from the least to the most, and the most.
func tenfold(least, most int) []int {
	var list []int
	for n := least; n < most; n *= 10 {
		list = append(list, n)
	}
	return append(list, most)
}

// halfSteps puts 3, 30, 300 ... between.
func halfSteps(list []int) []int {
	var more []int
	for i, n := range list {
		more = append(more, n)
		if i+1 < len(list) && 3*n < list[i+1] {
			more = append(more, 3*n)
		}
	}
	return more
}
