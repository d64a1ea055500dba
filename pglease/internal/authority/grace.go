package authority

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// graceState is the SQLSTATE of a grant that is refused because of a failover's grace.
const graceState = "PGF04"

// A graceError says for how long the server will not grant.
type graceError struct {
	remaining time.Duration
	err       error // the server's
}

func (e *graceError) Error() string { return fmt.Sprintf("for another %v, %v", e.remaining, e.err) }

func (e *graceError) Unwrap() error { return e.err }

// grace is when the server's failover grace will be over, as far as it is known.
type grace struct{ until atomic.Pointer[time.Time] }

// left is what is left of it now.
func (g *grace) left() time.Duration {
	if until := g.until.Load(); until != nil {
		return time.Until(*until)
	}
	return 0
}

// inGrace begins the grace, if that was not done yet, of a server that refused a grant for it: the
// statement itself was rolled back. It adds to the error what is left of the grace.
func (p *Postgres) inGrace(ctx context.Context, err error) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != graceState {
		return err
	}
	var remaining time.Duration
	begun := p.onAny(ctx, func(c *pgx.Conn) (err error) {
		remaining, err = p.queries.BeginGrace(ctx, p.on(c))
		return err
	})
	if begun != nil {
		return errors.Join(err, begun)
	}
	until := time.Now().Add(remaining)
	p.grace.until.Store(&until)
	return &graceError{remaining, err}
}

// held turns the refusal of a server in its grace into an answer.
func (a Answer) held(err error) (Answer, error) {
	var grace *graceError
	if !errors.As(err, &grace) {
		return a, err
	}
	return Answer{Outcome: Held, Grace: true, Remaining: max(grace.remaining, 0)}, nil
}
