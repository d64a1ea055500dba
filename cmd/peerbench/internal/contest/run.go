package contest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/grid"
	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/cmd/peerbench/internal/queues"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

// maxConnections is enough for 64 clients of every peer that uses Postgres.
const maxConnections = 800

// stage is where a run takes place.
type stage struct {
	Options
	addresses map[string]string // by kind of server
	peers     []peers.Peer      // those whose server runs
	result    *Result
}

// Run compares. It starts the servers and ends them. The error matches servers.ErrMissing where a
// peer that was asked for is not on this machine; the result has the others.
func Run(ctx context.Context, o Options) (_ Result, err error) {
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	set, pg, err := servers.Start(ctx, maxConnections)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, set.Stop()) }()
	s := &stage{Options: o, addresses: map[string]string{}, result: &Result{
		Cores: runtime.NumCPU(), Go: runtime.Version(), Rounds: o.Rounds, ForMS: o.For.Milliseconds(),
	}}
	s.has(pg)
	absent, err := s.gather(ctx, set)
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	if err := s.works(ctx); err != nil {
		return Result{}, err
	}
	s.result.Seconds = time.Since(began).Seconds()
	return *s.result, absent
}

func (s *stage) has(server servers.Server) {
	s.addresses[server.Kind] = server.Address
	s.result.Servers = append(s.result.Servers, Server{Kind: server.Kind, About: server.About})
}

// gather starts the other servers and prepares the peers. It tells of each one that is absent.
func (s *stage) gather(ctx context.Context, set *servers.Set) (absent, err error) {
	wanted := s.wanted()
	for _, kind := range peers.Servers(wanted)[1:] {
		server, err := set.Add(ctx, kind)
		switch {
		case errors.Is(err, servers.ErrMissing):
			fmt.Fprintln(s.Notice, err)
			s.result.Missing = append(s.result.Missing, err.Error())
			absent = errors.Join(absent, err)
		case err != nil:
			return nil, err
		default:
			s.has(server)
		}
	}
	for _, p := range wanted {
		address, ok := s.addresses[p.Server]
		if !ok {
			continue
		}
		if p.Prepare != nil {
			if err := p.Prepare(ctx, address); err != nil {
				return nil, fmt.Errorf("prepare %s: %w", p.Name, err)
			}
		}
		s.peers = append(s.peers, p)
		s.result.Peers = append(s.result.Peers, factsOf(p))
	}
	return absent, nil
}

// works runs what was asked for.
func (s *stage) works(ctx context.Context) error {
	for _, n := range s.Clients {
		if err := s.cell(ctx, Pairs, n, s.pairs); err != nil {
			return err
		}
	}
	for _, n := range s.Contenders {
		if err := s.cell(ctx, HandOver, n, s.handOvers); err != nil {
			return err
		}
	}
	if err := s.cell(ctx, Renew, s.Leases, s.renewals); err != nil {
		return err
	}
	if err := s.cell(ctx, Jobs, queues.Workers, s.jobs); err != nil {
		return err
	}
	if !s.wants(Takeover) {
		return nil
	}
	fmt.Fprintf(s.Notice, "%s: %s\n", Takeover, grid.Count(s.Rounds, "round"))
	return s.takeovers(ctx)
}

// prepared are the loads of one cell. The first is the limit.
type prepared struct {
	loads  []measure.Load
	titles []string
	ends   []func()
}

func (p *prepared) add(title string, load measure.Load, end func()) {
	p.loads, p.titles, p.ends = append(p.loads, load), append(p.titles, title), append(p.ends, end)
}

func (p *prepared) end() {
	for _, f := range slices.Backward(p.ends) {
		f()
	}
}

// cell measures one work at one size.
func (s *stage) cell(ctx context.Context, work string, n int, prepare func(context.Context, *prepared, int) error) error {
	if !s.wants(work) {
		return nil
	}
	fmt.Fprintf(s.Notice, "%s: %d, %s\n", work, n, grid.Count(s.Rounds, "round"))
	var p prepared
	defer p.end()
	if err := prepare(ctx, &p, n); err != nil {
		return fmt.Errorf("prepare %s: %w", work, err)
	}
	all, err := measure.Rounds(ctx, p.loads, s.Rounds, s.For)
	if err != nil {
		return fmt.Errorf("measure %s with %d: %w", work, n, err)
	}
	for i, series := range all {
		s.result.Cells = append(s.result.Cells, cellOf(work, n, p.titles[i], series, all[0]))
	}
	return nil
}
