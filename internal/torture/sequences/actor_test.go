package sequences_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// A role is what a worker process is told at its start.
type role struct {
	Name       string
	Leases     string // URL of the database of the leases
	Reports    string // URL of the database of the reports
	TTL        time.Duration
	RenewEvery time.Duration
	DirectWake bool
}

// A command is one step that a worker process takes. It takes them in the order in which they stand in
// its pipe, so a command that is put there while the process is stopped is the first thing it does
// when it goes on.
type command struct {
	Do       string // a key of the table in actor.do
	Body     string
	Expected int64
	Waiters  int
}

// An answer is what it says after each.
type answer struct {
	Outcome string // "ok", or how it failed: see outcomeOf
	Token   string
	State   string // of the lease
	Version int64
	Body    string

	Served             int // of a crowd
	Sent, Rings, Looks int64
}

const (
	outcomeOK       = "ok"
	outcomeLost     = "lost"
	outcomeStale    = "stale owner"
	outcomeConflict = "conflict"
	outcomeUnknown  = "unknown"
)

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return outcomeOK
	case errors.Is(err, fence.ErrStaleOwner):
		return outcomeStale
	case errors.Is(err, reportstore.ErrConflict):
		return outcomeConflict
	case errors.Is(err, pglease.ErrLost):
		return outcomeLost
	case errors.Is(err, pglease.ErrUnknownOutcome):
		return outcomeUnknown
	}
	return err.Error()
}

// runWorker is the main function of a worker process. It ends when its input does.
func runWorker(stdin io.Reader, stdout io.Writer) int {
	in, out := json.NewDecoder(stdin), json.NewEncoder(stdout)
	var r role
	if err := in.Decode(&r); err != nil {
		return 1
	}
	ctx := context.Background()
	a, err := newActor(ctx, r)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			return 0
		}
		if err := out.Encode(a.do(ctx, c)); err != nil {
			return 1
		}
	}
}

// An actor takes the steps of a worker process.
type actor struct {
	client *pglease.Client
	leases *pgxpool.Pool
	store  *reportstore.Store
	lease  *pglease.Lease
	count  traffic
}

// traffic counts what the process sends to the database of the leases, on all connections.
type traffic struct{ sent, rings, looks atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer. Beats come with time, not with hand-overs.
func (t *traffic) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	switch {
	case isStatement("Beat")(q.SQL):
		return ctx
	case isStatement("Watch")(q.SQL), isStatement("WatchOne")(q.SQL):
		t.looks.Add(1)
	case isRing(q.SQL):
		t.rings.Add(1)
	}
	t.sent.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*traffic) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func newActor(ctx context.Context, r role) (*actor, error) {
	a := &actor{}
	config, err := pgxpool.ParseConfig(r.Leases)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	config.ConnConfig.Tracer = &a.count
	if a.leases, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	reports, err := pgxpool.New(ctx, r.Reports)
	if err != nil {
		return nil, err
	}
	if a.store, err = reportstore.New(reports, reportstore.Config{Owner: r.Name}); err != nil {
		return nil, err
	}
	a.client, err = pglease.New(ctx, a.leases, pglease.Config{
		Owner: r.Name, TTL: r.TTL, RenewEvery: r.RenewEvery, MaxWaiters: 10_000, DirectWake: r.DirectWake,
	})
	return a, err
}

func (a *actor) do(ctx context.Context, c command) answer {
	step := map[string]func(context.Context, command) (answer, error){
		"acquire": a.acquire, "read": a.read, "publish": a.publish, "publish guarded": a.publishGuarded,
		"release": a.release, "look": a.look, "crowd": a.crowd,
	}[c.Do]
	if step == nil {
		return answer{Outcome: "no such command: " + c.Do}
	}
	said, err := step(ctx, c)
	said.Outcome = outcomeOf(err)
	if a.lease != nil {
		said.Token, said.State = a.lease.Token().String(), a.lease.State().String()
	}
	return said
}

// acquire waits its turn and makes its fence known to the report before it reads anything.
func (a *actor) acquire(ctx context.Context, _ command) (_ answer, err error) {
	if a.lease, err = a.client.Acquire(ctx, july); err != nil {
		return answer{}, err
	}
	return answer{}, a.store.Establish(ctx, a.lease.Token(), july)
}

func (a *actor) read(ctx context.Context, _ command) (answer, error) {
	found, err := a.store.Read(ctx, july)
	return answer{Version: found.Version, Body: string(found.Body)}, err
}

// publish does not ask the lease first: it is the write that was under way when its owner lost it.
func (a *actor) publish(ctx context.Context, c command) (answer, error) {
	done, err := a.store.Publish(ctx, a.lease.Token(), c.report())
	return answer{Version: done.Version}, err
}

func (c command) report() reportstore.Report {
	return reportstore.Report{ID: july, Body: []byte(c.Body), ExpectedVersion: c.Expected}
}

// publishGuarded publishes in the database of the leases, where the lease itself can be looked at in
// the same transaction.
func (a *actor) publishGuarded(ctx context.Context, c command) (said answer, err error) {
	err = pglease.GuardedTx(ctx, a.leases, a.lease, func(tx pgx.Tx) error {
		done, err := a.store.PublishTx(ctx, tx, a.lease.Token(), c.report())
		said.Version = done.Version
		return err
	})
	return said, err
}

func (a *actor) release(ctx context.Context, _ command) (answer, error) {
	return answer{}, a.lease.Release(ctx)
}

func (a *actor) look(context.Context, command) (answer, error) { return answer{}, nil }

// crowd has many wait for the report at once. Each publishes what it finds there plus one line.
func (a *actor) crowd(ctx context.Context, c command) (answer, error) {
	var mu sync.Mutex
	var said answer
	var failed error
	var wg sync.WaitGroup
	before := []int64{a.count.sent.Load(), a.count.rings.Load(), a.count.looks.Load()}
	for range c.Waiters {
		wg.Go(func() {
			err := a.client.Do(ctx, july, a.addOne)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			said.Served++
		})
	}
	wg.Wait()
	said.Sent, said.Rings, said.Looks = a.count.sent.Load()-before[0], a.count.rings.Load()-before[1], a.count.looks.Load()-before[2]
	return said, failed
}

func (a *actor) addOne(ctx context.Context, lease *pglease.Lease) error {
	found, err := a.store.Read(ctx, july)
	if err != nil {
		return err
	}
	_, err = a.store.Publish(ctx, lease.Token(), reportstore.Report{
		ID: july, Body: fmt.Appendf(nil, "%d", found.Version+1), ExpectedVersion: found.Version,
	})
	return err
}
