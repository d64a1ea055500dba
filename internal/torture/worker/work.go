package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/filestore"
	"github.com/pglease/pglease/reportstore"
)

// work is what a session does under one lease.
type work struct {
	*session
	resource int
	lease    *pglease.Lease
	token    fence.Token
}

// forged makes a token that nobody was granted.
func forged(t fence.Token) fence.Token {
	forged, err := fence.Parse(fmt.Sprintf("%d:%s:%s", t.Fence()+1, t.LeaseID(), t.Resource()))
	if err != nil {
		panic(err)
	}
	return forged
}

// unit is one unit of work: establish, read, compute, publish. False says that the resource refused.
func (w *work) unit(ctx context.Context) bool {
	stores := w.order.Stores
	if len(stores) == 0 {
		stores = []string{history.Reports, history.Watermarks, history.Files, history.Counters}
	}
	switch stores[w.random.IntN(len(stores))] {
	case history.Reports:
		return w.report(ctx)
	case history.Watermarks:
		return w.command(ctx)
	case history.Files:
		return w.file(ctx)
	default:
		return w.count(ctx)
	}
}

// compute takes its time; now and then longer than the lease lives.
func (w *work) compute(ctx context.Context) {
	d := w.upTo(2 * w.order.Hold)
	if w.chance(0.01) {
		d = w.upTo(2 * w.order.TTL)
	}
	pause(ctx, d)
}

// establish tells a store of the token, most times: nothing obliges an owner to.
func (w *work) establish(ctx context.Context, store string, do func(context.Context) error) bool {
	if w.chance(0.4) {
		return true
	}
	c := w.record.call(of(history.Establish, store, w.token), func(c *history.Call) {
		ctx, cancel := w.within(ctx)
		defer cancel()
		settle(c, do(ctx), reason{fence.ErrStaleOwner, history.Stale})
	})
	return c.Outcome != history.Refused
}

// publish makes a publication, and again where its outcome is not known: with the same key.
func (w *work) publish(ctx context.Context, store string, do func(ctx context.Context, key string, c *history.Call) error) bool {
	start := of(history.Publish, store, w.token)
	for try := 0; ; try++ {
		c := w.record.call(start, func(c *history.Call) {
			ctx, cancel := w.within(ctx)
			defer cancel()
			settle(c, do(ctx, c.Key, c), reason{fence.ErrStaleOwner, history.Stale},
				reason{fence.ErrConflict, history.Conflict}, reason{reportstore.ErrConflict, history.Conflict})
		})
		if c.Outcome != history.Unknown {
			return c.Outcome == history.OK
		}
		if try == 2 || w.stopping() || w.chance(0.3) {
			return true
		}
		start.Key = c.Key
	}
}

func (w *work) report(ctx context.Context) bool {
	id := w.token.Resource()
	if !w.establish(ctx, history.Reports, func(ctx context.Context) error { return w.reports.Establish(ctx, w.token, id) }) {
		return false
	}
	var version int64
	reading, cancel := w.within(ctx)
	before, err := w.reports.Read(reading, id)
	cancel()
	switch {
	case err == nil:
		version = before.Version
	case !errors.Is(err, reportstore.ErrNotFound):
		return true // not reached; there is nothing to base a publication on
	}
	w.compute(ctx)
	return w.publish(ctx, history.Reports, func(ctx context.Context, key string, c *history.Call) error {
		p, err := w.reports.Publish(ctx, w.token, reportstore.Report{ID: id, Body: []byte(key), ExpectedVersion: version})
		c.Database = p.PublishedAt
		return err
	})
}

const insertEffect = `INSERT INTO torture.effect (resource_id, key, fence, lease_id) VALUES ($1, $2, $3, $4)`

func (w *work) command(ctx context.Context) bool {
	if !w.establish(ctx, history.Watermarks, func(ctx context.Context) error { return w.marks.Establish(ctx, w.process.resource, w.token) }) {
		return false
	}
	w.compute(ctx)
	return w.publish(ctx, history.Watermarks, func(ctx context.Context, key string, _ *history.Call) error {
		_, err := w.marks.Apply(ctx, w.process.resource, w.token, fence.Op{Key: key, Apply: func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, err := tx.Exec(ctx, insertEffect, w.token.Resource(), key, w.token.Fence(), w.token.LeaseID().String())
			return nil, err
		}})
		return err
	})
}

func (w *work) file(ctx context.Context) bool {
	dir := filepath.Join(w.order.Files, strconv.Itoa(w.resource))
	store, err := filestore.Open(dir, w.token.Resource())
	if err != nil {
		return true
	}
	defer func() { _ = store.Close() }() // it keeps nothing
	if !w.establish(ctx, history.Files, func(ctx context.Context) error { return store.Establish(ctx, w.token) }) {
		return false
	}
	w.compute(ctx)
	return w.publish(ctx, history.Files, func(ctx context.Context, key string, _ *history.Call) error {
		name, content := FileName(key), fmt.Appendf(nil, "%s\n%s\n", key, w.token)
		if w.order.Planted == PlantBareFiles {
			next := filepath.Join(w.order.Files, "next-"+FileName(w.name))
			if err := os.WriteFile(next, content, 0o644); err != nil { //nolint:gosec // for people to look at
				return err
			}
			return os.Rename(next, filepath.Join(dir, name))
		}
		return store.Write(ctx, w.token, name, content)
	})
}

// FileName is the name of the file that is written under a key.
func FileName(key string) string {
	text := []byte(key)
	for i, b := range text {
		if b == '/' || b == '#' {
			text[i] = '_'
		}
	}
	return string(text)
}

const (
	readCounter   = `SELECT n FROM torture.counter WHERE resource_id = $1`
	writeCounter  = `INSERT INTO torture.counter (resource_id, n) VALUES ($1, $2) ON CONFLICT (resource_id) DO UPDATE SET n = EXCLUDED.n`
	recordCounter = `INSERT INTO torture.counted (resource_id, n, key, fence, lease_id) VALUES ($1, $2, $3, $4, $5)`
)

// count reads a counter, takes its time, and writes one more, in a guarded transaction: without the
// guard another would do so meanwhile. Now and then the lease is released while it does.
func (w *work) count(ctx context.Context) bool {
	var releasing sync.WaitGroup
	defer releasing.Wait()
	early := w.chance(0.15)
	// It is decided here: random is not for two goroutines.
	hold, after := w.upTo(w.order.Hold), w.upTo(w.order.Hold)
	if w.chance(0.05) {
		hold = w.upTo(w.order.TTL / 3)
	}
	byToken := w.chance(0.3)
	c := w.record.call(of(history.Guard, history.Counters, w.token), func(c *history.Call) {
		ctx, cancel := w.within(ctx)
		defer cancel()
		err := w.guarded(ctx, byToken, func(tx pgx.Tx) error {
			if early {
				releasing.Go(func() { w.releaseAfter(ctx, after) })
			}
			return w.increment(ctx, tx, c.Key, hold)
		})
		settle(c, err, reason{pglease.ErrLost, history.Lost})
		if err != nil && !errors.Is(err, pglease.ErrUnknownOutcome) {
			c.Outcome = history.Refused // not by the commit: nothing was committed
		}
	})
	return c.Outcome != history.Refused
}

func (w *work) guarded(ctx context.Context, byToken bool, fn func(pgx.Tx) error) error {
	if byToken {
		return pglease.GuardedTokenTx(ctx, w.authority, w.token, fn)
	}
	return pglease.GuardedTx(ctx, w.authority, w.lease, fn)
}

func (w *work) increment(ctx context.Context, tx pgx.Tx, key string, hold time.Duration) error {
	var n int64
	if err := tx.QueryRow(ctx, readCounter, w.token.Resource()).Scan(&n); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	pause(ctx, hold)
	if _, err := tx.Exec(ctx, writeCounter, w.token.Resource(), n+1); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, recordCounter, w.token.Resource(), n+1, key, w.token.Fence(), w.token.LeaseID().String())
	return err
}

// releaseAfter is a release that comes while work is under way.
func (w *work) releaseAfter(ctx context.Context, d time.Duration) {
	pause(ctx, d)
	w.release(ctx, w.lease)
}
