package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/internal/ownsession"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

const (
	// bellEvery is how often a waiting worker says so again. A bell that was not heard for a
	// minute is not rung.
	bellEvery = 20 * time.Second

	// selfTest is how long a message through the pool may take to the listening connection.
	selfTest = 2 * time.Second

	// listenerPing is how often the silent connection is asked whether it is alive.
	listenerPing = 15 * time.Second

	// listenerPause is how long a lost connection waits for the next try; one through which nothing is
	// delivered twice as long after each try, up to noPushPause: a pooler stays one, a busy server does not.
	listenerPause = 5 * time.Second
	noPushPause   = time.Minute
)

var errNoPush = errors.New("a notification through the pool did not arrive; polling alone")

// listen hears the bell until the context ends. Without it everything works, later.
func (w *worker) listen(ctx context.Context) {
	deaf := time.Duration(0) // the last pause, where nothing was delivered
	for ctx.Err() == nil {
		err := w.listenOnce(ctx)
		w.hear(false)
		noPush := errors.Is(err, errNoPush)
		if err != nil && ctx.Err() == nil && (deaf == 0 || !noPush) { // once is enough
			w.config.Logger.Warn("the worker cannot listen", "queue", w.config.Queue, "error", err)
			w.emit(Event{Kind: EventPollOnly, Err: err})
		}
		var delay time.Duration
		delay, deaf = pauseAfter(noPush, deaf)
		_ = pause(ctx, jitter(delay, 0.2))
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if err := w.client.queries.LeaveBell(leaving, w.client.schema.On(w.client.pool), uuid(w.id)); err != nil {
		w.config.Logger.Warn("the worker's bell stays", "error", err) // it goes by age
	}
}

// pauseAfter is how long to wait before the next try to listen, and what it is to be told after that one.
func pauseAfter(noPush bool, deaf time.Duration) (delay, nextDeaf time.Duration) {
	if !noPush {
		return listenerPause, 0
	}
	delay = min(max(listenerPause, 2*deaf), noPushPause)
	return delay, delay
}

func (w *worker) listenOnce(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := connect(opening, w.client.pool)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
	// A pooler in transaction mode accepts LISTEN, leaves it to whoever has the session next, and delivers nothing.
	switch err := ownsession.Check(opening, conn, w.onPool); {
	case errors.Is(err, ownsession.ErrShared):
		return errors.Join(errNoPush, err)
	case err != nil:
		return err
	}
	channel := channelOf(w.id)
	if _, err := conn.Exec(opening, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	if _, err := w.client.pool.Exec(opening, "SELECT pg_notify($1, '')", channel); err != nil {
		return err
	}
	testing, cancelTest := context.WithTimeout(ctx, selfTest)
	defer cancelTest()
	if _, err := conn.WaitForNotification(testing); err != nil {
		return errors.Join(errNoPush, err)
	}
	w.hear(true)
	nudge(w.rung) // look once: what came before could not ring
	for {
		if err := w.awaitRing(ctx, conn); err != nil {
			return err
		}
	}
}

func (w *worker) onPool(ctx context.Context, do func(*pgx.Conn) error) error {
	return w.client.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return do(c.Conn()) })
}

// awaitRing returns when the bell rang, or when the connection was silent for a while and lives.
func (w *worker) awaitRing(ctx context.Context, conn *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, listenerPing)
	defer cancel()
	_, err := conn.WaitForNotification(waiting)
	if err == nil {
		nudge(w.rung)
		return nil
	}
	if ctx.Err() != nil || !pgconn.Timeout(err) {
		return err
	}
	pinging, cancelPing := context.WithTimeout(ctx, requestTimeout)
	defer cancelPing()
	return conn.Ping(pinging)
}

func (w *worker) hear(pushed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pushed = pushed
}

func (w *worker) hears() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pushed
}

// waitAtBell says that the worker waits, and tells whether that was noted.
func (w *worker) waitAtBell(alive context.Context) bool {
	ctx, cancel := context.WithTimeout(alive, requestTimeout)
	defer cancel()
	err := w.client.queries.WaitAtBell(ctx, w.client.schema.On(w.client.pool), jobsdb.WaitAtBellParams{
		WorkerID: uuid(w.id), Queue: w.config.Queue,
	})
	if err != nil {
		w.config.Logger.Warn("the worker's bell cannot be hung", "error", err)
	}
	return err == nil
}
