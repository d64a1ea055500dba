package httpfence

import (
	"context"
	"sync"
)

// A line has the requests of one resource wait for each other before they take a connection: those
// that waited in Postgres would hold one each. It decides nothing; the watermark's lock does.
type line struct {
	mu    sync.Mutex
	turns map[string]*turn
}

type turn struct {
	taken chan struct{} // holds one value while it is somebody's
	users int           // that have it or wait for it
}

// enter waits for the turn of a resource. Call leave when done.
func (l *line) enter(ctx context.Context, resource string) (leave func(), err error) {
	t := l.join(resource)
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; l.quit(resource, t) }, nil
	case <-ctx.Done():
		l.quit(resource, t)
		return nil, context.Cause(ctx)
	}
}

func (l *line) join(resource string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turns[resource]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		if l.turns == nil {
			l.turns = map[string]*turn{}
		}
		l.turns[resource] = t
	}
	t.users++
	return t
}

func (l *line) quit(resource string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.users--
	if t.users == 0 {
		delete(l.turns, resource)
	}
}
