package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// requestTimeout bounds each statement that no caller's context bounds.
const requestTimeout = 10 * time.Second

// Run works on Config.Queue until the context ends: it claims up to Config.Concurrency jobs,
// hands each to the handler on a goroutine of its own, and ends it by what the handler returns.
// Several processes may run on one queue, and one process on several queues.
//
// All claims of the process live by one heartbeat, on a connection of its own. A second one of its
// own listens for notifications, opened by the worker and given up where they do not arrive, as
// behind a pooler in transaction mode; then polling alone finds the jobs.
//
// When the context ends Run claims nothing more. Handlers may go on for Config.StopTimeout; then
// their contexts end, and Run returns when all have returned. Their claims stay alive until then.
// It returns nil when it was stopped so, an error that matches ErrInvalidConfig or ErrSchema when
// it could not begin. A database that fails is waited for, and logged.
func Run(ctx context.Context, pool *pgxpool.Pool, config Config, handler Handler) error {
	c, err := New(pool, config)
	if err == nil {
		if err = checkQueue(config.Queue); err != nil {
			err = wrap("run", "", 0, errors.Join(ErrInvalidConfig, err))
		}
	}
	if err == nil && handler == nil {
		err = wrap("run", config.Queue, 0, errors.Join(ErrInvalidConfig, errors.New("the handler is nil")))
	}
	if err != nil {
		return err
	}
	if err := c.CheckSchema(ctx); errors.Is(err, ErrSchema) {
		return err
	}
	c.events = newEvents(config.Observer)
	newWorker(c, handler).run(ctx)
	telling, giveUp := context.WithTimeout(context.WithoutCancel(ctx), c.config.StopTimeout)
	defer giveUp()
	if !c.events.close(telling) {
		c.config.Logger.Warn("the observer did not return", "queue", config.Queue)
	}
	return nil
}

// A worker is one call of Run.
type worker struct {
	client  *Client
	config  Config
	handler Handler
	id      [16]byte

	rung   chan struct{} // somebody rang; holds one
	again  chan struct{} // a partition may have moved on; holds one
	freed  chan struct{} // a claim ended; holds one
	ended  chan *task    // handlers that returned nil, for the completer
	tasks  sync.WaitGroup
	rounds sync.WaitGroup // goroutines that live as long as the worker

	mu      sync.Mutex
	running map[claimKey]*task
	pushed  bool // notifications arrive
}

func newWorker(c *Client, handler Handler) *worker {
	return &worker{
		client: c, config: c.config, handler: handler, id: newUUID(),
		rung: make(chan struct{}, 1), again: make(chan struct{}, 1), freed: make(chan struct{}, 1), ended: make(chan *task, c.config.Concurrency),
		running: map[claimKey]*task{},
	}
}

// run begins everything, claims until it is told to stop, and ends everything in the reverse
// order: heartbeats stop last, when no handler runs.
func (w *worker) run(ctx context.Context) {
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	listening, deaf := context.WithCancel(alive)
	var listener sync.WaitGroup
	listener.Go(func() { w.listen(listening) })
	w.rounds.Go(func() { w.beat(alive) })
	w.rounds.Go(func() { w.tend(alive) })
	w.rounds.Go(func() { w.completeAll(alive) })

	w.claimAll(ctx, alive)
	deaf()
	listener.Wait()
	w.stop()
	end()
	w.rounds.Wait()
}

// claimAll keeps the worker busy.
func (w *worker) claimAll(ctx, alive context.Context) {
	atBell := time.Time{} // when the bell last heard that this worker waits
	rung := false
	for ctx.Err() == nil {
		n := min(w.free(), MaxBatch)
		if n == 0 {
			wait(ctx, w.freed, nil, w.config.PollEvery)
			continue
		}
		// Not the caller's context: a claim that is cut short may have been granted.
		request, cancel := context.WithTimeout(alive, requestTimeout)
		claims, err := w.client.Claim(request, w.config.Queue, n)
		cancel()
		if err != nil {
			w.config.Logger.Error("jobs cannot be claimed", "queue", w.config.Queue, "error", err)
			w.emit(Event{Kind: EventError, Err: err})
		} else {
			w.emit(Event{Kind: EventPoll, Jobs: len(claims), Rung: rung})
		}
		rung = false
		for _, claim := range claims {
			w.start(alive, claim)
		}
		if len(claims) == n {
			continue
		}
		if err == nil && w.hears() && time.Since(atBell) > bellEvery {
			// Look once more after that: what was added before could not ring.
			if atBell = time.Now(); w.waitAtBell(alive) {
				continue
			}
		}
		if rung = wait(ctx, w.again, w.rung, jitter(w.config.PollEvery, 0.2)); rung {
			atBell = time.Time{}
		}
	}
}

// wait waits for either channel, the context or the time, and tells whether it was rung.
func wait(ctx context.Context, other, rung <-chan struct{}, d time.Duration) (wasRung bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-other:
	case <-timer.C:
	case <-rung:
		return true
	}
	return false
}

// free is how many more claims the worker may have.
func (w *worker) free() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config.Concurrency - len(w.running)
}

// stop waits for the handlers, with patience first.
func (w *worker) stop() {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		w.tasks.Wait()
	}()
	timer := time.NewTimer(w.config.StopTimeout)
	defer timer.Stop()
	select {
	case <-returned:
		return
	case <-timer.C:
	}
	for _, t := range w.all() {
		t.cancel(ErrStopping)
	}
	<-returned
}

// emit tells the observer of what no claim is the subject of.
func (w *worker) emit(e Event) {
	e.Queue = w.config.Queue
	w.client.events.emit(e)
}

func (w *worker) all() []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*task, 0, len(w.running))
	for _, t := range w.running {
		all = append(all, t)
	}
	return all
}

// nudge puts a token into a channel that holds one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
