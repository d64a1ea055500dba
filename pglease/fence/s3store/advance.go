package s3store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pglease/pglease/pglease/fence"
)

const (
	maxDoubts  = 8                // how many puts without an answer a write bears
	racePause  = time.Millisecond // after the first race that was lost; doubles
	doubtPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// A change is what a write makes of the pointer it found, which is raised to the token already. Its
// error says that the token is good and the command is not; the raised pointer is put all the same.
type change func(ctx context.Context, p *pointer) error

// A write is one call under way: the loop that doc.go argues about.
type write struct {
	store  *Store
	token  fence.Token
	nonce  string
	change change

	doubtful string // the ETag that a put without an answer named, "*" for none; empty: there was none
	doubts   int
	verdict  error // of the change, in the put under way
}

func (s *Store) advance(ctx context.Context, token fence.Token, c change) (Version, error) {
	if token.IsZero() {
		return Version{}, fmt.Errorf("%w: it is the zero token", fence.ErrInvalidToken)
	}
	w := &write{store: s, token: token, nonce: newNonce(), change: c}
	p, err := w.run(ctx)
	if err != nil {
		return Version{}, err
	}
	return p.version(), nil
}

func (w *write) run(ctx context.Context) (pointer, error) {
	for try := 0; ; try++ {
		cur, err := w.store.read(ctx, w.token.Resource())
		if err != nil {
			return pointer{}, w.orUnknown(err)
		}
		if done, err := w.settled(cur); done || err != nil {
			return cur.pointer, err
		}
		p, done, err := w.next(ctx, cur)
		if done || err != nil {
			return p, w.orUnknown(err)
		}
		done, err = w.put(ctx, cur, p)
		if done || err != nil {
			return p, err
		}
		if err := w.pause(ctx, try); err != nil {
			return pointer{}, w.orUnknown(err)
		}
	}
}

// settled judges what is there: whether the write is over, one way or the other.
func (w *write) settled(cur state) (done bool, err error) {
	switch {
	case cur.etag != "" && cur.Nonce == w.nonce:
		return true, w.verdict // a put whose answer was lost was taken
	case cur.newer(w.token):
		return true, w.orUnknown(cur.stale(w.token, w.store.config.Owner))
	case w.doubtful == "" || w.doubtful == condition(cur):
		return false, nil
	case cur.of(w.token):
		return true, fmt.Errorf("%w: another write under the same lease came after it", ErrUnknownOutcome)
	}
	// An older owner has written since the put without an answer was sent. It could not have followed
	// that put, and the ETag that the put named is gone: it was not taken, nor will it be.
	w.doubtful = ""
	return false, nil
}

// next makes the pointer that is to follow cur. It is done where nothing needs to be put.
func (w *write) next(ctx context.Context, cur state) (p pointer, done bool, err error) {
	p = cur.raised(w.token, w.store.config.Owner, w.nonce)
	before := p
	w.verdict = w.change(ctx, &p)
	var conflict *fence.ConflictError
	switch {
	case w.verdict != nil && !errors.As(w.verdict, &conflict):
		return pointer{}, true, w.verdict
	case cur.of(w.token) && p == before: // established already
		return cur.pointer, true, w.verdict
	}
	return p, false, nil
}

// put sends the pointer once.
func (w *write) put(ctx context.Context, cur state, p pointer) (done bool, err error) {
	body, err := p.bytes()
	if err != nil {
		return true, err
	}
	_, err = w.store.putIf(ctx, w.store.PointerKey(w.token.Resource()), body, cur.etag)
	switch answerOf(err) {
	case taken:
		return true, w.verdict
	case lost:
		return false, nil
	case refused:
		return true, w.orUnknown(err)
	}
	w.doubtful = condition(cur)
	w.doubts++
	if w.doubts == maxDoubts || ctx.Err() != nil {
		return true, w.orUnknown(err)
	}
	return false, nil
}

// condition names what a put over cur depends on.
func condition(cur state) string {
	if cur.etag == "" {
		return "*"
	}
	return cur.etag
}

// orUnknown adds to an error that a put of this write may have been taken.
func (w *write) orUnknown(err error) error {
	if err == nil || w.doubtful == "" {
		return err
	}
	return fmt.Errorf("%w; %w", err, ErrUnknownOutcome)
}

// pause waits a random time, longer after a put without an answer than after a race that was lost:
// then somebody else has got on.
func (w *write) pause(ctx context.Context, try int) error {
	d := racePause << min(try, 6)
	if w.doubtful != "" {
		d = doubtPause << min(w.doubts, 6)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(rand.N(min(d, maxPause))):
		return nil
	}
}
