//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
	"github.com/pglease/pglease/internal/torture/proxy"
	"github.com/pglease/pglease/internal/torture/worker"
)

// A leg is a stretch of a run with resources of its own, so that it can be checked by itself.
type leg struct {
	Options
	servers   *Servers
	name      string
	dir       string
	resources []string
	began     time.Time
	watch     *watch
	pending   sync.WaitGroup // faults under way
	quieted   atomic.Int64   // sessions, see quiet

	mu       sync.Mutex
	children []*child
	started  int
	paths    []string // of the processes' histories
	made     []history.Fault
	waits    []history.Wait
	err      error // that ends the leg: the harness itself does not work
}

// did writes down a fault that was made.
func (l *leg) did(kind, target, detail string, from time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = append(l.made, history.Fault{Kind: kind, Target: target, Detail: detail, From: from, To: time.Now()})
}

// failed notes an error of the harness, and tells whether there is one.
func (l *leg) failed(err error) bool {
	if err == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, err)
	return true
}

func (l *leg) broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// runLeg runs workers under faults for so long, and returns what happened.
func runLeg(ctx context.Context, o Options, s *Servers, number int, length time.Duration) (*history.History, error) {
	l := &leg{Options: o, servers: s, name: "leg" + strconv.Itoa(number), began: time.Now()}
	if err := l.prepare(); err != nil {
		return nil, err
	}
	for n := range o.Workers {
		if err := l.hire(n); err != nil {
			return nil, errors.Join(err, l.dismiss(context.WithoutCancel(ctx)))
		}
	}
	l.makeFaults(ctx, number, length)
	err := errors.Join(l.broken(), l.dismiss(context.WithoutCancel(ctx)))
	appeared, watched := l.watch.close()
	if err := errors.Join(err, watched, ctx.Err()); err != nil {
		return nil, err
	}
	return l.gather(ctx, appeared)
}

func (l *leg) prepare() error {
	l.dir = filepath.Join(l.Dir, l.name)
	var err error
	if l.watch, err = newWatch(); err != nil {
		return err
	}
	for n := range l.Options.Resources {
		l.resources = append(l.resources, fmt.Sprintf("%s/r%d", l.name, n))
		dir := filepath.Join(l.dir, "files", strconv.Itoa(n))
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for people to look at
			return err
		}
		if err := l.watch.add(dir); err != nil {
			return err
		}
	}
	return nil
}

// hire starts the process in place n, and another where that was killed.
func (l *leg) hire(n int) error {
	authority, err := proxy.Open(&l.servers.authority, func(sql string) string { return l.quiet(l.Planted.Rewrite(sql)) })
	if err != nil {
		return err
	}
	resource, err := proxy.Open(&l.servers.resource, l.Planted.Rewrite)
	if err != nil {
		return errors.Join(err, authority.Close())
	}
	l.started++
	direct := n%2 == 0 // half of them, and who comes in the place of another is as it was
	name := fmt.Sprintf("%s.w%d", l.name, l.started)
	path := filepath.Join(l.dir, name+".jsonl")
	authority.Rows(statementOfWait, l.waited(name))
	c, err := startChild(l.Worker(), worker.Order{
		Name: name, Seed: l.Seed + uint64(l.started), //nolint:gosec // a small number
		Authority: through(l.servers.authorityURL(), authority.Address()), Resource: through(l.servers.resourceURL(), resource.Address()),
		Files: filepath.Join(l.dir, "files"), History: path, Resources: l.resources,
		TTL: l.TTL, Sessions: l.Sessions, Direct: direct, Careless: l.Careless, Hold: l.Hold, Stores: l.Planted.Stores, Planted: l.Planted.Worker,
	}, authority, resource)
	if err != nil {
		return errors.Join(err, authority.Close(), resource.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paths = append(l.paths, path)
	if n < len(l.children) {
		l.children[n] = c
	} else {
		l.children = append(l.children, c)
	}
	return nil
}

// makeFaults draws faults until the leg's time is over, or something of the harness breaks.
func (l *leg) makeFaults(ctx context.Context, number int, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	random := func(stream uint64) *rand.Rand {
		return rand.New(rand.NewPCG(l.Seed, uint64(number)<<8|stream)) //nolint:gosec // drawn from a seed on purpose
	}
	var schedulers sync.WaitGroup
	schedulers.Go(func() { l.disturb(ctx, random(1)) })
	schedulers.Go(func() { l.crash(ctx, random(2)) })
	schedulers.Wait()
	l.pending.Wait()
}

// disturb makes faults of processes and of their networks, many at once.
func (l *leg) disturb(ctx context.Context, random *rand.Rand) {
	list := drawable(faults, l.Only)
	for wait(ctx, between(random, l.Faults)); ctx.Err() == nil; wait(ctx, between(random, l.Faults)) {
		n, d := random.IntN(l.Workers), draw{random.Float64(), random.IntN(1 << 20)}
		if len(list) == 0 {
			return
		}
		f := list[random.IntN(len(list))]
		c := l.child(n)
		if !c.running() {
			if l.failed(l.replace(ctx, n, c)) {
				return
			}
			continue
		}
		l.pending.Go(func() { f.strike(ctx, l, c, d) })
		if l.broken() != nil {
			return
		}
	}
}

// longestCrash is how long one fault of servers may take: one whose server does not come up again ends the run.
const longestCrash = 2 * time.Minute

// crash makes faults of servers, one after the other.
func (l *leg) crash(ctx context.Context, random *rand.Rand) {
	list := drawable(crashes, l.Only)
	// Begun is finished, also when the time is over: a server must be up at the end.
	whole := context.WithoutCancel(ctx)
	strike := func(f fault) {
		whole, cancel := context.WithTimeout(whole, longestCrash)
		defer cancel()
		f.strike(whole, l, nil, draw{random.Float64(), random.IntN(1 << 20)})
	}
	for wait(ctx, between(random, l.Crashes)); ctx.Err() == nil && len(list) > 0; wait(ctx, between(random, l.Crashes)) {
		strike(list[random.IntN(len(list))])
		if l.broken() != nil {
			return
		}
	}
}

func between(random *rand.Rand, mean time.Duration) time.Duration {
	return mean/2 + time.Duration(random.Int64N(int64(mean)))
}

func (l *leg) child(n int) *child {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.children[n]
}

// replace puts a new process in the place of one that is gone.
func (l *leg) replace(ctx context.Context, n int, gone *child) error {
	if err := gone.stop(ctx); err != nil {
		return err
	}
	return l.hire(n)
}

// dismiss ends all processes, and all that befell them.
func (l *leg) dismiss(ctx context.Context) error {
	l.mu.Lock()
	children := l.children
	l.mu.Unlock()
	errs := make([]error, len(children))
	var all sync.WaitGroup
	for i, c := range children {
		for _, link := range []*proxy.Link{c.authority, c.resource} {
			link.Disarm()
			link.Thaw(0)
			link.Lag(0)
		}
		all.Go(func() { errs[i] = c.stop(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// gather puts the history together.
func (l *leg) gather(ctx context.Context, appeared []string) (*history.History, error) {
	if len(l.waits) > 0 && l.quieted.Load() == 0 && l.servers.clockLib != "" {
		return nil, errTimer
	}
	h := &history.History{Began: l.began, Faults: l.made, Waits: l.waits}
	for _, path := range l.paths {
		calls, err := history.ReadCalls(path)
		if err != nil {
			return nil, err
		}
		h.Calls = append(h.Calls, calls...)
	}
	written, err := filesWritten(appeared)
	if err != nil {
		return nil, err
	}
	h.Writes = written
	h.Losses, h.Steps = l.servers.record()
	return h, l.servers.collect(ctx, l.name+"/", h)
}
