package fencetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pglease/pglease/pglease/fence"
)

// A suite is one check under way: the resource, and what tells its commands and tokens apart.
type suite struct {
	Resource
	commands atomic.Int64

	mu     sync.Mutex
	leases int
	last   int64 // the greatest fence made up
}

func newSuite(r Resource) *suite { return &suite{Resource: r} }

// grant returns the next token. Those made up begin just below 10 and go up in uneven steps.
func (s *suite) grant(ctx context.Context) (fence.Token, error) {
	if s.Grant != nil {
		token, err := s.Grant(ctx)
		if err != nil {
			return fence.Token{}, fmt.Errorf("grant: %w", err)
		}
		return token, nil
	}
	s.mu.Lock()
	s.last = max(s.last+1+s.last%3, 8)
	number := s.last
	s.mu.Unlock()
	return s.token(number)
}

// grants returns n tokens, each newer than the one before.
func (s *suite) grants(ctx context.Context, n int) ([]fence.Token, error) {
	tokens := make([]fence.Token, n)
	for i := range tokens {
		var err error
		if tokens[i], err = s.grant(ctx); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// token makes a token up: of this fence, and of a lease of its own.
func (s *suite) token(number int64) (fence.Token, error) {
	s.mu.Lock()
	s.leases++
	lease := s.leases
	s.mu.Unlock()
	return fence.Parse(fmt.Sprintf("%d:0f1e2d3c-4b5a-4978-8695-%012x:%s", number, lease, s.name()))
}

// command makes a command that no other is like.
func (s *suite) command(sequence int64) Command {
	return Command{ID: fmt.Sprintf("command-%d", s.commands.Add(1)), Sequence: sequence}
}

// accepted writes a command and returns an error unless it took effect.
func (s *suite) accepted(ctx context.Context, token fence.Token, c Command) error {
	if err := s.Write(ctx, token, c); err != nil {
		return fmt.Errorf("%s under fence %d: want it accepted, got: %w", c.ID, token.Fence(), err)
	}
	return nil
}

// refused writes a command and returns an error unless the token is called stale.
func (s *suite) refused(ctx context.Context, token fence.Token, c Command) error {
	return s.stale(c.ID, token, s.Write(ctx, token, c))
}

// stale judges the answer to what was sent under a stale token.
func (s *suite) stale(what string, token fence.Token, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s under stale fence %d was accepted", what, token.Fence())
	case !fence.IsStale(err):
		return fmt.Errorf("%s under stale fence %d: want an error that fence.IsStale knows, got: %w", what, token.Fence(), err)
	}
	return nil
}

// invalid tells whether err says that the token is good and the command is not.
func invalid(err error) bool {
	return errors.Is(err, fence.ErrOutOfOrder) || errors.Is(err, fence.ErrConflict)
}

// holds returns an error unless just these commands took effect, in this order.
func (s *suite) holds(ctx context.Context, want ...string) error {
	entries, err := s.History(ctx)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	got := make([]string, len(entries))
	for i, e := range entries {
		got[i] = e.Command
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("the history is %v, want %v", got, want)
	}
	return s.inOrder(entries)
}

// inOrder is CheckHistory, by what the resource promises.
func (s *suite) inOrder(entries []Entry) error {
	if err := CheckHistory(entries); err != nil && (!s.NoLeaseID || !errors.Is(err, fence.ErrSharedFence)) {
		return err
	}
	return nil
}

// first returns the first of the errors that is not nil. The steps of a check depend on each other;
// what follows a wrong one says nothing.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
