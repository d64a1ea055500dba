package pglease

import "context"

// A watcher is told of a lease's states, under the lease's mutex: it must not wait.
type watcher struct {
	states chan State              // holds the newest state only; nil when nobody reads states
	cancel context.CancelCauseFunc // called when the lease is over; may be nil
}

func (w *watcher) tell(s State, err error) {
	if s.Over() && w.cancel != nil {
		w.cancel(err)
	}
	if w.states == nil {
		return
	}
	select {
	case <-w.states: // an older state that was not read
	default:
	}
	w.states <- s
	if s.Over() {
		close(w.states)
	}
}

// States returns a channel of the lease's states, beginning with the present one. It never holds
// up the client: a reader that is late finds the newest state and misses those between. After the
// final state the channel is closed. Each call returns a channel of its own; stop frees it.
func (l *Lease) States() (states <-chan State, stop func()) {
	w := &watcher{states: make(chan State, 1)}
	return w.states, l.watch(w)
}

// Context returns a copy of parent that is cancelled when the lease is over; context.Cause then
// returns the lease's Err. The cancel function frees it and must be called.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := l.watch(&watcher{cancel: cancel})
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

func (l *Lease) watch(w *watcher) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.tell(l.state, l.err)
	if l.state.Over() {
		return func() {}
	}
	if l.watchers == nil {
		l.watchers = map[*watcher]struct{}{}
	}
	l.watchers[w] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, w)
	}
}
