package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/fence"
)

// writerCount is how many writers share a resource.
const writerCount = 32

// A crowd is many writers at once: each uses, at random, tokens that are current or were.
type crowd struct {
	*suite

	mu       sync.Mutex
	tokens   []fence.Token // in the order of their grants
	accepted map[string]fence.Token
	refused  map[string]fence.Token
	sequence int64
	problems []error
}

// writers: 32 writers at random. Afterwards the resource's own history is held against the rule and
// against what the writers were told.
func writers(ctx context.Context, s *suite) error {
	d, err := writingTime()
	if err != nil {
		return err
	}
	c := &crowd{suite: s, accepted: map[string]fence.Token{}, refused: map[string]fence.Token{}}
	if err := c.takeOver(ctx); err != nil {
		return err
	}
	start := time.Now()
	var writing sync.WaitGroup
	for range writerCount {
		writing.Go(func() { c.write(ctx, start, d) })
	}
	writing.Wait()
	return c.judge(ctx)
}

// patience is how many times longer than asked for the writers go on when too little has happened.
const patience = 20

func (c *crowd) write(ctx context.Context, start time.Time, d time.Duration) {
	for ctx.Err() == nil {
		if passed := time.Since(start); passed > d && (c.saysSomething() || passed > patience*d) {
			return
		}
		if err := c.step(ctx); err != nil {
			c.mu.Lock()
			c.problems = append(c.problems, err)
			c.mu.Unlock()
			return
		}
	}
}

// saysSomething tells whether both answers were given often enough to show anything.
func (c *crowd) saysSomething() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.accepted) >= 3 && len(c.refused) >= 3 || len(c.problems) > 0
}

// step does one of what writers do.
func (c *crowd) step(ctx context.Context) error {
	token := c.pick()
	switch n := rand.IntN(16); {
	case n == 0:
		return c.takeOver(ctx)
	case n == 1 && c.Establish != nil:
		if err := c.Establish(ctx, token); err != nil && !fence.IsStale(err) {
			return fmt.Errorf("establish under fence %d: %w", token.Fence(), err)
		}
		return nil
	case n == 2 && !c.NoLeaseID:
		twin, err := c.token(token.Fence())
		if err != nil {
			return err
		}
		return c.send(ctx, twin)
	}
	return c.send(ctx, token)
}

// takeOver adds a newer token. The lock makes the order of the list that of the grants.
func (c *crowd) takeOver(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	token, err := c.grant(ctx)
	if err == nil {
		c.tokens = append(c.tokens, token)
	}
	return err
}

// pick returns the newest token, or one of those before it.
func (c *crowd) pick() fence.Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	back := min(rand.IntN(4)*rand.IntN(4), len(c.tokens)-1)
	return c.tokens[len(c.tokens)-1-back]
}

func (c *crowd) send(ctx context.Context, token fence.Token) error {
	c.mu.Lock()
	c.sequence++
	command := c.command(c.sequence)
	c.mu.Unlock()
	err := c.Write(ctx, token, command)
	if err != nil && !fence.IsStale(err) && !invalid(err) {
		return fmt.Errorf("%s under fence %d: %w", command.ID, token.Fence(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.accepted[command.ID] = token
	} else {
		c.refused[command.ID] = token
	}
	return nil
}

// judge compares what the writers were told with what the resource says.
func (c *crowd) judge(ctx context.Context) error {
	if len(c.problems) > 0 {
		return errors.Join(c.problems...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Not the last token: its twin may have come first.
	token, err := c.grant(ctx)
	if err != nil {
		return err
	}
	last := c.command(c.sequence + 1)
	if err := c.suite.accepted(ctx, token, last); err != nil {
		return fmt.Errorf("the newest owner, when all others are done: %w", err)
	}
	c.accepted[last.ID] = token
	entries, err := c.History(ctx)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if err := errors.Join(c.inOrder(entries), c.told(entries)); err != nil {
		return err
	}
	if !c.saysSomething() {
		return fmt.Errorf("%d commands were accepted and %d refused: too few to show anything", len(c.accepted), len(c.refused))
	}
	return nil
}

// told returns an error unless each accepted command took effect, once, under its token, and no
// other did.
func (c *crowd) told(entries []Entry) error {
	seen := map[string]bool{}
	for _, e := range entries {
		token, ok := c.accepted[e.Command]
		switch {
		case !ok && !c.refused[e.Command].IsZero():
			return fmt.Errorf("%s under fence %d took effect, and its writer was told that it was refused", e.Command, e.Fence)
		case !ok:
			return fmt.Errorf("%s took effect, and nobody sent it", e.Command)
		case seen[e.Command]:
			return fmt.Errorf("%s took effect twice", e.Command)
		case token.Fence() != e.Fence:
			return fmt.Errorf("%s took effect under fence %d, and was sent under %d", e.Command, e.Fence, token.Fence())
		case token.LeaseID() != e.LeaseID && !c.NoLeaseID:
			return fmt.Errorf("%s took effect under lease %s, and was sent under %s", e.Command, e.LeaseID, token.LeaseID())
		}
		seen[e.Command] = true
	}
	for command := range c.accepted {
		if !seen[command] {
			return fmt.Errorf("%s was accepted and is not in the history", command)
		}
	}
	return nil
}
