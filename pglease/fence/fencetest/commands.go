package fencetest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/pglease/pglease/pglease/fence"
)

// outOfOrder writes a command and returns an error unless it is refused though its token is good.
func (s *suite) outOfOrder(ctx context.Context, token fence.Token, c Command) error {
	err := s.Write(ctx, token, c)
	switch {
	case err == nil:
		return fmt.Errorf("%s, number %d under fence %d, was accepted after a later one", c.ID, c.Sequence, token.Fence())
	case fence.IsStale(err) || !invalid(err):
		return fmt.Errorf("%s, number %d under fence %d, which is current: want fence.ErrOutOfOrder, got: %w", c.ID, c.Sequence, token.Fence(), err)
	}
	return nil
}

// A sent command is one of a queue that a partition held up.
type sent struct {
	token fence.Token
	owner int
	Command
}

// queue: the resource was cut off, commands piled up on the way, and arrive in any order. The rule
// has one answer to each.
func queue(ctx context.Context, s *suite) error {
	const owners, each = 5, 4
	tokens, err := s.grants(ctx, owners)
	if err != nil {
		return err
	}
	var commands []sent
	for owner, token := range tokens {
		for n := range int64(each) {
			commands = append(commands, sent{token, owner, s.command(n + 1)})
		}
	}
	order := rand.New(rand.NewPCG(1, 2)) // the same in every run
	order.Shuffle(len(commands), func(i, j int) { commands[i], commands[j] = commands[j], commands[i] })

	var want []string
	greatest, last := 0, int64(0) // the owner that the resource has heard of, and its last command
	if s.KnowsGrants {
		greatest = owners - 1
	}
	for _, c := range commands {
		var err error
		switch {
		case c.owner < greatest:
			err = s.refused(ctx, c.token, c.Command)
		case c.owner == greatest && s.Sequences && c.Sequence < last:
			err = s.outOfOrder(ctx, c.token, c.Command)
		default:
			err = s.accepted(ctx, c.token, c.Command)
			greatest, last = c.owner, c.Sequence
			want = append(want, c.ID)
		}
		if err != nil {
			return err
		}
	}
	return s.holds(ctx, want...)
}

// repeated: a reply was lost, and the command is sent again; and once more when its owner is over.
func repeated(ctx context.Context, s *suite) error {
	older, err := s.grant(ctx)
	if err != nil {
		return err
	}
	a, b := s.command(1), s.command(1)
	want := []string{a.ID}
	if err := s.accepted(ctx, older, a); err != nil {
		return err
	}
	if s.Repeats {
		for range 2 {
			if err := s.accepted(ctx, older, a); err != nil {
				return err
			}
		}
	}
	newer, err := s.grant(ctx)
	if err != nil {
		return err
	}
	want = append(want, b.ID)
	return first(
		func() error { return s.accepted(ctx, newer, b) },
		func() error { return s.refused(ctx, older, a) },
		func() error { return s.holds(ctx, want...) },
	)
}

// crash: a writer dies between its check and its effect, once as the current owner and once as the
// next. Its command took effect wholly or not at all, what was refused before still is, and all that
// matters of the order still holds.
func crash(ctx context.Context, s *suite) error {
	tokens, err := s.grants(ctx, 2)
	if err != nil {
		return err
	}
	oldest, older := tokens[0], tokens[1]
	a, dead, b := s.command(1), s.command(2), s.command(3)
	err = first(
		func() error { return s.accepted(ctx, older, a) },
		func() error { _ = s.Crash(ctx, older, dead); return nil },
		func() error { return s.refused(ctx, oldest, s.command(1)) },
		func() error { return s.accepted(ctx, older, b) },
		func() error { return s.holdsEither(ctx, []string{a.ID, b.ID}, []string{a.ID, dead.ID, b.ID}) },
	)
	if err != nil {
		return err
	}
	newer, err := s.grant(ctx)
	if err != nil {
		return err
	}
	dies, c := s.command(1), s.command(2)
	return first(
		func() error { _ = s.Crash(ctx, newer, dies); return nil },
		func() error { return s.refused(ctx, oldest, s.command(2)) },
		func() error { return s.sentAgain(ctx, newer, dies) },
		func() error { return s.accepted(ctx, newer, c) },
		func() error { return s.refused(ctx, older, s.command(4)) },
		func() error { return s.endsWith(ctx, c.ID, dies.ID) },
	)
}

// sentAgain writes a command whose first answer never came, where the resource promises that this
// does it once.
func (s *suite) sentAgain(ctx context.Context, token fence.Token, c Command) error {
	if !s.Repeats {
		return nil
	}
	return s.accepted(ctx, token, c)
}

func (s *suite) holdsEither(ctx context.Context, one, other []string) error {
	err := s.holds(ctx, one...)
	if err != nil && s.holds(ctx, other...) == nil {
		return nil
	}
	return err
}

// endsWith returns an error unless the last command is this one, and what came before is in order
// and holds the other once: at most, where it was not sent again.
func (s *suite) endsWith(ctx context.Context, last, other string) error {
	entries, err := s.History(ctx)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	times := 0
	for _, e := range entries {
		if e.Command == other {
			times++
		}
	}
	if len(entries) == 0 || entries[len(entries)-1].Command != last || times > 1 || times == 0 && s.Repeats {
		return fmt.Errorf("the history is %v: want %s last, and %s before it, once", entries, last, other)
	}
	return s.inOrder(entries)
}
