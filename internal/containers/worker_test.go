package containers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

const (
	report = "report/2026-07"
	ttl    = 4 * time.Second
)

// A word is what the owner says of itself, one line each.
type word struct {
	Said  string // "granted", "state", "refused", "published again"
	Token string
	State string // of the lease
	Count int    // of the versions that it has published under the token
	Err   string
}

// A worker owns the report in a container. It is careless: it publishes until it is refused, whatever
// becomes of its lease.
type worker struct {
	mu    sync.Mutex
	out   *json.Encoder
	lease *pglease.Lease
	count int
}

func (w *worker) say(said string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := word{Said: said, Token: w.lease.Token().String(), State: w.lease.State().String(), Count: w.count}
	if err != nil {
		line.Err = err.Error()
	}
	_ = w.out.Encode(line)
}

func runWorker(stdout io.Writer) int {
	w := &worker{out: json.NewEncoder(stdout)}
	if err := w.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (w *worker) run(ctx context.Context) error {
	leases, err := pgxpool.New(ctx, os.Getenv("LEASES"))
	if err != nil {
		return err
	}
	reports, err := pgxpool.New(ctx, os.Getenv("REPORTS"))
	if err != nil {
		return err
	}
	store, err := reportstore.New(reports, reportstore.Config{Owner: "in a container"})
	if err != nil {
		return err
	}
	client, err := pglease.New(ctx, leases, pglease.Config{Owner: "in a container", TTL: ttl, RenewEvery: ttl / 20})
	if err != nil {
		return err
	}
	if err := w.toil(ctx, client, store); err != nil {
		return err
	}
	return w.again(ctx, client, store)
}

// toil publishes until it is refused.
func (w *worker) toil(ctx context.Context, client *pglease.Client, store *reportstore.Store) (err error) {
	if w.lease, err = client.Acquire(ctx, report); err != nil {
		return err
	}
	if err := store.Establish(ctx, w.lease.Token(), report); err != nil {
		return err
	}
	w.say("granted", nil)
	states, stop := w.lease.States()
	defer stop()
	told := make(chan struct{})
	go func() {
		defer close(told)
		for range states {
			w.say("state", w.lease.Err())
		}
	}()
	for {
		_, err := store.Publish(ctx, w.lease.Token(), reportstore.Report{
			ID: report, Body: fmt.Appendf(nil, "%d by the first owner", w.count), ExpectedVersion: reportstore.AnyVersion,
		})
		if err != nil {
			w.say("refused", err)
			if !errors.Is(err, fence.ErrStaleOwner) {
				return err
			}
			<-told // the lease is over, or about to be: then there are no more states
			return nil
		}
		w.mu.Lock()
		w.count++
		w.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// again takes its turn once more, when it can.
func (w *worker) again(ctx context.Context, client *pglease.Client, store *reportstore.Store) error {
	lease, err := client.Acquire(ctx, report)
	for err != nil {
		lease, err = client.Acquire(ctx, report)
		time.Sleep(50 * time.Millisecond)
	}
	w.mu.Lock()
	w.lease, w.count = lease, 0
	w.mu.Unlock()
	_, err = store.Publish(ctx, lease.Token(), reportstore.Report{ID: report, Body: []byte("in its turn"), ExpectedVersion: reportstore.AnyVersion})
	w.say("published again", err)
	return errors.Join(err, lease.Release(ctx))
}
