package filestore

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"
)

// How often a lock that another process has is tried again: at first, and at most.
const (
	firstPause = time.Millisecond
	maxPause   = 32 * time.Millisecond
)

// lock takes the directory's lock, the turn of this Store first, so that its goroutines wait in
// line and one alone asks the kernel. The lock is on the bookkeeping's directory and not on a file
// in it: a file could be replaced, and two processes would then hold two locks.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	f, err := s.flocked(ctx)
	if err != nil {
		<-s.turn
		return nil, err
	}
	return func() {
		_ = f.Close() // gives the lock back
		<-s.turn
	}, nil
}

func (s *Store) flocked(ctx context.Context) (*os.File, error) {
	f, err := s.openSidecar()
	if err != nil {
		return nil, err
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		got, err := tryLock(f)
		if err == nil && !got {
			err = wait(ctx, pause)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if got {
			return f, nil
		}
	}
}

// openSidecar opens the bookkeeping's directory, and makes it where there is none.
func (s *Store) openSidecar() (*os.File, error) {
	found, err := s.hasSidecar()
	if err != nil {
		return nil, err
	}
	if !found {
		if err := s.root.Mkdir(sidecar, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := s.sync("."); err != nil {
			return nil, err
		}
	}
	return s.root.Open(sidecar)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d/2 + rand.N(d)):
		return nil
	}
}
