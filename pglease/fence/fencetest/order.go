package fencetest

import (
	"context"

	"github.com/pglease/pglease/pglease/fence"
)

// firstTouch: the resource has heard of nobody, so it takes the older of two tokens, unless it
// knows of the newer grant. Once the newer has written, the older is shut out either way.
func firstTouch(ctx context.Context, s *suite) error {
	tokens, err := s.grants(ctx, 2)
	if err != nil {
		return err
	}
	older, newer := tokens[0], tokens[1]
	a, b := s.command(1), s.command(1)
	want := []string{a.ID, b.ID}
	touch := s.accepted
	if s.KnowsGrants {
		touch, want = s.refused, want[1:]
	}
	return first(
		func() error { return s.holds(ctx) },
		func() error { return touch(ctx, older, a) },
		func() error { return s.accepted(ctx, newer, b) },
		func() error { return s.refused(ctx, older, s.command(2)) },
		func() error { return s.holds(ctx, want...) },
	)
}

func lowerRefused(ctx context.Context, s *suite) error {
	tokens, err := s.grants(ctx, 3)
	if err != nil {
		return err
	}
	current := tokens[2]
	a, b := s.command(1), s.command(2)
	return first(
		func() error { return s.accepted(ctx, current, a) },
		func() error { return s.refused(ctx, tokens[1], s.command(1)) },
		func() error { return s.refused(ctx, tokens[0], s.command(1)) },
		// A refusal must not have lowered anything, nor may one that is repeated get through.
		func() error { return s.refused(ctx, tokens[1], s.command(2)) },
		func() error { return s.holds(ctx, a.ID) },
		func() error { return s.accepted(ctx, current, b) },
		func() error { return s.refused(ctx, tokens[1], s.command(3)) },
		func() error { return s.holds(ctx, a.ID, b.ID) },
	)
}

func higherEstablishes(ctx context.Context, s *suite) error {
	var before []fence.Token
	var want []string
	for range 4 {
		token, err := s.grant(ctx)
		if err != nil {
			return err
		}
		c := s.command(1)
		want = append(want, c.ID)
		if err := s.supersedes(ctx, token, c, before); err != nil {
			return err
		}
		before = append(before, token)
	}
	return s.holds(ctx, want...)
}

// supersedes holds the resource to it that a command of this token is accepted, and then none of those before.
func (s *suite) supersedes(ctx context.Context, token fence.Token, c Command, before []fence.Token) error {
	if err := s.accepted(ctx, token, c); err != nil {
		return err
	}
	for _, old := range before {
		if err := s.refused(ctx, old, s.command(2)); err != nil {
			return err
		}
	}
	return nil
}

func equalValidated(ctx context.Context, s *suite) error {
	token, err := s.grant(ctx)
	if err != nil {
		return err
	}
	var want []string
	for n := range int64(4) {
		c := s.command(n + 1)
		want = append(want, c.ID)
		if err := s.accepted(ctx, token, c); err != nil {
			return err
		}
	}
	if s.Sequences {
		if err := s.outOfOrder(ctx, token, s.command(2)); err != nil {
			return err
		}
	}
	return s.holds(ctx, want...)
}

// numbers: texts are compared by their first digits, and floats lose the last bit.
func numbers(ctx context.Context, s *suite) error {
	var want []string
	var before []fence.Token
	for _, number := range []int64{1, 2, 9, 10, 11, 99, 100, 1<<31 - 1, 1 << 31, 1<<32 + 1, 1<<53 - 2, 1<<53 - 1} {
		token, err := s.token(number)
		if err != nil {
			return err
		}
		c := s.command(1)
		want = append(want, c.ID)
		if err := s.supersedes(ctx, token, c, before); err != nil {
			return err
		}
		before = append(before, token)
	}
	return s.holds(ctx, want...)
}

// sharedFence: two servers that are both writable on one timeline can hand out one number twice.
func sharedFence(ctx context.Context, s *suite) error {
	token, err := s.grant(ctx)
	if err != nil {
		return err
	}
	twin, err := s.token(token.Fence())
	if err != nil {
		return err
	}
	a, b := s.command(1), s.command(3)
	return first(
		func() error { return s.accepted(ctx, token, a) },
		func() error { return s.refused(ctx, twin, s.command(2)) },
		func() error { return s.accepted(ctx, token, b) },
		func() error { return s.refused(ctx, twin, s.command(4)) },
		func() error { return s.holds(ctx, a.ID, b.ID) },
	)
}

func establish(ctx context.Context, s *suite) error {
	tokens, err := s.grants(ctx, 1)
	if err != nil {
		return err
	}
	a, b := s.command(1), s.command(1)
	err = first(
		func() error { return s.Establish(ctx, tokens[0]) }, // untouched
		func() error { return s.holds(ctx) },
		func() error { return s.Establish(ctx, tokens[0]) }, // again: harmless
		func() error { return s.accepted(ctx, tokens[0], a) },
	)
	if err != nil {
		return err
	}
	newer, err := s.grant(ctx)
	if err != nil {
		return err
	}
	return first(
		func() error { return s.Establish(ctx, newer) },
		func() error { return s.refused(ctx, tokens[0], s.command(2)) }, // though nothing was written
		func() error { return s.stale("establishing", tokens[0], s.Establish(ctx, tokens[0])) },
		func() error { return s.holds(ctx, a.ID) },
		func() error { return s.accepted(ctx, newer, b) },
		func() error { return s.Establish(ctx, newer) },
		func() error { return s.holds(ctx, a.ID, b.ID) },
	)
}
