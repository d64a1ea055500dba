package reportstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/internal/bounded"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore/internal/reportdb"
)

// What a statement answers.
const (
	applied    = "applied"
	repeated   = "repeated"
	staleOwner = "stale_owner"
	conflict   = "conflict"
	again      = "again"
)

// errRivals: nothing was done, because others changed the report each time between two statements.
var errRivals = errors.New("too many rivals at once")

// tries bounds how often alone runs what took no effect. The second run meets no serialization
// failure any more; needing a third takes another cause.
const tries = 8

// alone runs a step in a transaction of its own until it takes effect.
//
// The first time its statements go out as they are, one round trip each. Where the session's
// default isolation level is above READ COMMITTED, meeting a rival fails by serialization; every
// further run is therefore a transaction pinned to READ COMMITTED. The rule needs no more than
// that: it is decided on one row, under that row's lock.
func (s *Store) alone(ctx context.Context, step func(reportdb.DBTX) error) error {
	err := step(s.schema.On(s.pool))
	for try := 1; try < tries && tookNoEffect(err); try++ {
		if pause(ctx, try) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		err = bounded.Tx(ctx, s.pool, bounded.Own, func(tx pgx.Tx) error {
			return step(s.schema.On(tx))
		})
	}
	return err
}

// tookNoEffect tells whether err says for certain that nothing was done and that another run may
// do it: rivals came first, or the server undid the statement to resolve a conflict.
func tookNoEffect(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "40001" || pg.Code == "40P01"
	}
	return errors.Is(err, errRivals)
}

// pause waits a random time, so that those who collided do not meet again.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(rand.N(time.Millisecond << min(try, 5)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func leaseID(token fence.Token) pgtype.UUID {
	return pgtype.UUID{Bytes: token.LeaseID(), Valid: true}
}

func stale(token fence.Token, greatest int64, lease pgtype.UUID, owner string, version int64) error {
	return &StaleOwnerError{
		Token:           token,
		GreatestFence:   greatest,
		GreatestLeaseID: lease.Bytes,
		GreatestOwner:   owner,
		Version:         version,
	}
}
