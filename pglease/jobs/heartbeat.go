package jobs

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/bounded"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

const heartbeatBatch = 500

// beat is the worker's heartbeat: it extends all claims of the process, and tells the handlers
// whose claims are over.
func (w *worker) beat(alive context.Context) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			hangUp(alive, conn)
		}
	}()
	every := w.config.HeartbeatEvery
	for pause(alive, jitter(every, 0.1)) == nil {
		every = w.config.HeartbeatEvery
		tasks := w.all()
		if len(tasks) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(alive, min(w.config.HeartbeatEvery, requestTimeout))
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = connect(ctx, w.client.pool)
		}
		if err == nil {
			err = w.extendAll(ctx, conn, tasks)
		}
		cancel()
		if err != nil && alive.Err() == nil {
			w.config.Logger.Error("a heartbeat failed", "queue", w.config.Queue, "claims", len(tasks), "error", err)
			w.emit(Event{Kind: EventHeartbeatError, Jobs: len(tasks), Err: err})
			every = w.config.HeartbeatEvery / 4 // there is time for several attempts before the TTL
		}
	}
}

// extendAll extends in batches. A claim that is over ends its handler's context; what was not
// confirmed for another reason ends it by the task's timer.
func (w *worker) extendAll(ctx context.Context, conn *pgx.Conn, tasks []*task) error {
	sent := time.Now()
	left := w.config.TTL
	for _, t := range tasks {
		left = min(left, t.claim.Remaining())
	}
	slices.SortFunc(tasks, func(a, b *task) int { return cmp.Compare(a.claim.ID, b.claim.ID) })
	for batch := range slices.Chunk(tasks, heartbeatBatch) {
		claims := make([]*Claim, len(batch))
		byKey := make(map[claimKey]*task, len(batch))
		for i, t := range batch {
			claims[i], byKey[t.claim.key()] = t.claim, t
		}
		err := w.client.extendOn(ctx, conn, claims)
		stale := StaleClaims(err)
		for _, over := range stale {
			w.lose(byKey[claimKey{over.ID, over.Fence}], over)
		}
		if err != nil && len(stale) == 0 {
			return err
		}
	}
	kind := EventHeartbeat
	if left < w.config.TTL/3 { // as much as one more heartbeat that fails would cost
		kind = EventHeartbeatLate
	}
	w.emit(Event{Kind: kind, Jobs: len(tasks), Duration: time.Since(sent), Remaining: left})
	return nil
}

// extendOn is extend on one connection, with a second try pinned to READ COMMITTED.
func (c *Client) extendOn(ctx context.Context, conn *pgx.Conn, claims []*Claim) error {
	err := c.extend(ctx, c.schema.On(conn), claims)
	if tookNoEffect(err) {
		err = bounded.Tx(ctx, conn, bounded.Own, func(tx pgx.Tx) error {
			var db jobsdb.DBTX = c.schema.On(tx)
			return c.extend(ctx, db, claims)
		})
	}
	return err
}

const pruneEvery = time.Minute

// tend looks after claims of the dead, partitions and old jobs.
func (w *worker) tend(alive context.Context) {
	every := min(tendEvery, w.config.TTL/4)
	for pruned := time.Now(); pause(alive, jitter(every, 0.2)) == nil; {
		ctx, cancel := context.WithTimeout(alive, requestTimeout)
		moved, err := w.client.Tend(ctx)
		if moved > 0 {
			nudge(w.again)
		}
		if err == nil && time.Since(pruned) > pruneEvery {
			pruned = time.Now()
			_, err = w.client.Prune(ctx, w.config.KeepFinished)
		}
		cancel()
		if err != nil && alive.Err() == nil {
			w.config.Logger.Error("jobs cannot be tended", "error", err)
			w.emit(Event{Kind: EventError, Err: err})
		}
	}
}
