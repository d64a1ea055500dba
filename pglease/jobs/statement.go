package jobs

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/internal/bounded"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// errRivals: nothing was done, because others were faster each time.
var errRivals = errors.New("too many rivals at once")

// tries bounds how often alone runs what took no effect.
const tries = 8

// alone runs one step in a transaction of its own until it takes effect.
//
// The first time its statement goes out as it is, in one round trip. Where the session's default
// isolation level is above READ COMMITTED, meeting a rival fails by serialization; every further
// run is pinned to READ COMMITTED, which is all that statements guarded on locked rows need.
func (c *Client) alone(ctx context.Context, step func(jobsdb.DBTX) error) error {
	err := step(c.schema.On(c.pool))
	for try := 1; try < tries && tookNoEffect(err); try++ {
		if pause(ctx, rand.N(time.Millisecond<<min(try, 5))) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		err = c.inTx(ctx, step)
	}
	return err
}

// inTx runs a step of several statements in a transaction pinned to READ COMMITTED: each of its
// statements sees what was committed before it began. A process that stops within it does not keep what it
// has locked.
func (c *Client) inTx(ctx context.Context, step func(jobsdb.DBTX) error) error {
	return bounded.Tx(ctx, c.pool, bounded.Own, func(tx pgx.Tx) error {
		return step(c.schema.On(tx))
	})
}

// tookNoEffect tells whether err says for certain that nothing was done and that another run may
// do it: the server undid the statement to resolve a conflict.
func tookNoEffect(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// pause waits, unless the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// jitter returns d, give or take a share of it, so that many do not act at once.
func jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 + share*(2*rand.Float64()-1)))
}
