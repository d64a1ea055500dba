package profile

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
	"github.com/pglease/pglease/migrations"
)

// maxConnections is enough for the sessions that listen, and a few for each work.
const maxConnections = 200

// many is how many operations of a row are done at once, most of them on a key or row of their own each.
const many = 32

// A load does the work of some rows, over and over.
type load struct {
	work  string                      // set by run
	begin func(context.Context) error // before each turn, not measured; may be nil
	cycle func(context.Context) error // some operations of each of its rows
	end   func()                      // after each turn; may be nil
}

// stage is where a run takes place.
type stage struct {
	Options
	address string
	meter   meter
	beside  *session // of UPDATEs between what is measured
	rows    []Row    // in the order in which they are printed
	ends    []func()
}

// Run measures, on a Postgres of its own.
func Run(ctx context.Context, o Options) (_ Result, err error) {
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	set, pg, err := servers.Start(ctx, maxConnections)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, set.Stop()) }()
	s := &stage{Options: o, address: pg.Address, meter: meter{
		ops: map[string]int{}, round: map[string][]figure{}, rounds: map[string][]figure{},
	}}
	defer s.close()
	began, before := time.Now(), load1()
	if err := s.prepare(ctx); err != nil {
		return Result{}, err
	}
	if err := s.run(ctx); err != nil {
		return Result{}, err
	}
	return s.result(Result{
		Cores: runtime.NumCPU(), Go: runtime.Version(), Server: pg.About, Rounds: o.Rounds, ForMS: o.For.Milliseconds(),
		LoadBefore: before, LoadAfter: load1(), Seconds: time.Since(began).Seconds(),
	}), nil
}

func (s *stage) atEnd(f func()) { s.ends = append(s.ends, f) }

func (s *stage) close() {
	for _, f := range slices.Backward(s.ends) {
		f()
	}
}

// row adds one to what is printed, and returns its name.
func (s *stage) row(work, name, title string) string {
	s.rows = append(s.rows, Row{Work: work, Name: name, Title: title})
	return name
}

// prepare makes the two schemas and the rows of the limit.
func (s *stage) prepare(ctx context.Context) (err error) {
	if s.meter.control, err = pgx.Connect(ctx, s.address); err != nil {
		return err
	}
	s.atEnd(func() { _ = s.meter.control.Close(context.WithoutCancel(ctx)) })
	for _, name := range []string{"pglease", "pglease-nohistory"} {
		peer, _ := peers.ByName(name)
		if err := peer.Prepare(ctx, s.address); err != nil {
			return err
		}
	}
	if s.beside, err = s.session(ctx); err != nil {
		return err
	}
	m, err := migrations.New(peers.HistorySchema)
	if err != nil {
		return err
	}
	for _, line := range []migrations.Line{migrations.Report, migrations.Jobs} {
		if _, err := m.Up(ctx, s.beside.Pool, line); err != nil {
			return err
		}
	}
	return execute(ctx, s.beside.Pool, createLimit)
}

// run has all loads in turn, in the opposite order in every second round. Before the first, each has a turn that
// is not recorded: connections are made in it, and statements planned for good.
func (s *stage) run(ctx context.Context) error {
	var loads []load
	for _, w := range works {
		if !s.wants(w.name) {
			continue
		}
		more, err := w.loads(s, ctx)
		if err != nil {
			return fmt.Errorf("prepare %s: %w", w.name, err)
		}
		for _, l := range more {
			l.work = w.name
			loads = append(loads, l)
		}
	}
	for round := range s.Rounds + 1 {
		fmt.Fprintf(s.Notice, "profile: round %d of %d\n", round, s.Rounds)
		for _, l := range loads {
			if err := s.turn(ctx, l, round == 0); err != nil {
				return err
			}
		}
		s.meter.endRound()
		slices.Reverse(loads)
	}
	return nil
}

// turn runs a load for its time. Its first cycle is not recorded: others have had the processor's caches.
func (s *stage) turn(ctx context.Context, l load, warmUp bool) error {
	if l.end != nil {
		defer l.end()
	}
	s.meter.off = true
	if l.begin != nil {
		if err := l.begin(ctx); err != nil {
			return err
		}
	}
	if err := s.cycle(ctx, l); err != nil {
		return err
	}
	s.meter.off = warmUp
	long := s.For
	if warmUp {
		long = 0
	}
	for began := time.Now(); ; {
		if err := s.cycle(ctx, l); err != nil || time.Since(began) >= long {
			return err
		}
	}
}

// cycle runs one of a load, and UPDATEs after it: what others do to the machine in that moment, they do to both.
func (s *stage) cycle(ctx context.Context, l load) error {
	if err := l.cycle(ctx); err != nil || l.work == limit {
		return err
	}
	return s.meter.times(ctx, updateBeside(l.work), s.beside.pid, many/2, func(i int) error {
		return execute(ctx, s.beside.Pool, updateRow, many+i)
	})
}

// updateBeside is the row, which is not printed, of the UPDATEs that ran between what a work measures.
func updateBeside(work string) string {
	if work == limit {
		return update
	}
	return update + "/" + work
}
