package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// connectTime, where the order says nothing else, bounds the first steps of a process, which may meet a
// database that is down. It is shorter than what a process gets to end in when it is told to.
const connectTime = 45 * time.Second

// errUnreached: the database could not be reached in all that time.
var errUnreached = errors.New("the authority was not reached")

// A process is one worker.
type process struct {
	order     Order
	authority *pgxpool.Pool
	resource  *pgxpool.Pool
	client    *pglease.Client
	reports   *reportstore.Store
	marks     *fence.Watermarks
	record    *recorder
	locks     []sync.Mutex // one call to acquire a resource, and one tenure, at a time in this process

	stop chan struct{}
}

// Main runs a process: the first line of its input is its Order, the others are Commands. It ends
// when it is told to, or when its input does.
func Main(stdin io.Reader, stderr io.Writer) int {
	in := json.NewDecoder(stdin)
	var order Order
	if err := in.Decode(&order); err != nil {
		fmt.Fprintln(stderr, "torture worker:", err)
		return 1
	}
	if err := run(context.Background(), order, in); err != nil {
		fmt.Fprintln(stderr, "torture worker:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, order Order, in *json.Decoder) error {
	p, err := start(ctx, order)
	if errors.Is(err, errUnreached) {
		return p.record.close() // it did nothing; another takes its place
	}
	if err != nil {
		return err
	}
	var sessions sync.WaitGroup
	for n := range order.Sessions {
		sessions.Go(func() {
			s := &session{
				process: p, number: n, name: fmt.Sprintf("%s/%d", order.Name, n),
				random: rand.New(rand.NewPCG(order.Seed, uint64(n))), //nolint:gosec // drawn from a seed on purpose
			}
			s.run(ctx)
		})
	}
	for {
		var command Command
		if err := in.Decode(&command); err != nil || command.Stop {
			break
		}
		if command.Drain > 0 {
			sessions.Go(func() { p.drain(ctx, command.Drain) })
		}
	}
	close(p.stop)
	sessions.Wait()
	ctx, cancel := context.WithTimeout(ctx, 2*order.TTL)
	defer cancel()
	for _, lease := range p.client.Leases() { // Close would release them, and nobody would know why
		p.release(ctx, lease)
	}
	err = p.client.Close(ctx)
	p.authority.Close()
	p.resource.Close()
	if err != nil && ctx.Err() == nil {
		// What could not be released ends with its TTL; faults may go on to the last.
		err = nil
	}
	return errors.Join(err, p.record.close())
}

func start(ctx context.Context, order Order) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(order.Patience, connectTime))
	defer cancel()
	p := &process{order: order, stop: make(chan struct{}), locks: make([]sync.Mutex, len(order.Resources))}
	var err error
	if p.record, err = newRecorder(order.Name, order.History); err != nil {
		return nil, err
	}
	if p.authority, err = pool(ctx, order.Authority, int32(order.Sessions+1)); err != nil { //nolint:gosec // a few
		return nil, err
	}
	if p.resource, err = pool(ctx, order.Resource, int32(order.Sessions)); err != nil { //nolint:gosec // a few
		return nil, err
	}
	if p.reports, err = reportstore.New(p.resource, reportstore.Config{Owner: order.Name}); err != nil {
		return nil, err
	}
	if p.marks, err = fence.NewWatermarks(fence.Config{Owner: order.Name}); err != nil {
		return nil, err
	}
	err = p.connect(ctx)
	return p, err
}

// connect makes the client. The way to the authority may be silent, so no try lasts for long.
func (p *process) connect(ctx context.Context) error {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 5*p.order.TTL)
		client, err := pglease.New(limited, p.authority, pglease.Config{
			Owner: p.order.Name, TTL: p.order.TTL, MaxHold: 3 * p.order.TTL, DirectWake: p.order.Direct, Observer: p.record,
		})
		cancel()
		p.client = client
		if err == nil || errors.Is(err, pglease.ErrSchema) || errors.Is(err, pglease.ErrInvalidConfig) {
			return err
		}
		pause(ctx, p.order.TTL/10)
	}
	return errUnreached
}

// pool opens no connection yet. Statements in a transaction have no limit of time of their own, so
// one that meets a silent network is ended by its context alone.
func pool(ctx context.Context, url string, size int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = size
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
}

// drain takes every connection of both pools, as a careless application does.
func (p *process) drain(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var taken []*pgxpool.Conn
	for _, pool := range []*pgxpool.Pool{p.authority, p.resource} {
		for range pool.Config().MaxConns {
			if c, err := pool.Acquire(ctx); err == nil {
				taken = append(taken, c)
			}
		}
	}
	<-ctx.Done()
	for _, c := range taken {
		c.Release()
	}
}

func (p *process) stopping() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
