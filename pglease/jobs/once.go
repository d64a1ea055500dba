package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// MaxOnceKeyLength is the longest idempotency key, in bytes.
const MaxOnceKeyLength = 512

// OnceOption changes one call of Once.
type OnceOption func(*onceOptions)

type onceOptions struct{ schema string }

// InSchema names the schema of the tables where it is not "pglease".
func InSchema(name string) OnceOption { return func(o *onceOptions) { o.schema = name } }

// Once runs fn once for a key and keeps its result, as JSON, in the caller's transaction: key,
// result and all that fn writes are committed together, or none is. A second call with the key
// does not run fn; it gets the first's result, with repeated set. One that comes while the first
// is under way waits for its end.
//
//	INSERT INTO job_once (key) VALUES ('charge/4711') ON CONFLICT DO NOTHING;
//	-- one row: run it, UPDATE job_once SET result = ...; none: SELECT result FROM job_once
//
// fn gets a savepoint of the transaction. When it returns an error, or panics, what it did in there is
// undone and the key is as new, also where ctx has ended; the caller's transaction goes on. What fn does outside the database is
// done again if the commit does not happen: give the key along, so that the other side can tell.
//
// Above READ COMMITTED, a rival that has just committed ends the transaction with a serialization
// failure (SQLSTATE 40001); run the whole of it again. The error matches ErrInvalidKey where the
// key is not 1 to 512 bytes of UTF-8 without NUL: nothing was sent. It matches ErrInvalidJob where
// the result is larger than MaxPayloadSize as JSON, or has a NUL: as if fn had failed.
func Once[T any](ctx context.Context, tx pgx.Tx, key string, fn func(context.Context, pgx.Tx) (T, error), options ...OnceOption) (result T, repeated bool, err error) {
	var o onceOptions
	for _, option := range options {
		option(&o)
	}
	s, err := schema.New(o.schema)
	if err == nil {
		err = checkOnceKey(key)
	}
	if err != nil {
		return result, false, wrap("once", "", 0, err)
	}
	for range tries {
		_, err = jobsdb.New().BeginOnce(ctx, s.On(tx), key)
		if err == nil {
			result, err = first(ctx, tx, s, key, fn)
			return result, false, wrap("once", key, 0, err)
		}
		if errors.Is(err, pgx.ErrNoRows) {
			result, err = again[T](ctx, s.On(tx), key)
		}
		if !errors.Is(err, pgx.ErrNoRows) { // with no row it was pruned in between
			return result, err == nil, wrap("once", key, 0, err)
		}
	}
	return result, false, wrap("once", key, 0, errRivals)
}

// first runs fn under the reserved key. When fn fails, or does not return at all, what it did is
// undone and the key given back, also where ctx has ended: the caller's transaction may go on.
func first[T any](ctx context.Context, tx pgx.Tx, s *schema.Schema, key string, fn func(context.Context, pgx.Tx) (T, error)) (result T, err error) {
	savepoint, err := tx.Begin(ctx)
	done := false
	defer func() {
		if done {
			return
		}
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		if savepoint != nil {
			err = errors.Join(err, savepoint.Rollback(undoing))
		}
		err = errors.Join(err, jobsdb.New().ForgetOnce(undoing, s.On(tx), key))
	}()
	if err != nil {
		return result, err
	}
	value, err := fn(ctx, savepoint)
	if err == nil {
		err = keep(ctx, s.On(savepoint), key, value)
	}
	if err != nil {
		return result, err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if err := savepoint.Commit(ending); err != nil {
		return result, err
	}
	done = true
	return value, nil
}

// keep puts the result beside the key.
func keep(ctx context.Context, db jobsdb.DBTX, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if len(text) > MaxPayloadSize {
		return fmt.Errorf("result: %w", invalid("it has %d bytes, the limit is %d", len(text), MaxPayloadSize))
	}
	if err := checkJSON(text); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	_, err = jobsdb.New().EndOnce(ctx, db, jobsdb.EndOnceParams{Key: key, Result: string(text)})
	return err
}

// again reads the first call's result.
func again[T any](ctx context.Context, db jobsdb.DBTX, key string) (result T, err error) {
	text, err := jobsdb.New().OnceResult(ctx, db, key)
	if err == nil {
		err = json.Unmarshal([]byte(text), &result)
	}
	return result, err
}

func checkOnceKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > MaxOnceKeyLength:
		return fmt.Errorf("%w: it is %d bytes long, the limit is %d", ErrInvalidKey, len(key), MaxOnceKeyLength)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return fmt.Errorf("%w: %q is not valid UTF-8 without NUL", ErrInvalidKey, key)
	}
	return nil
}

// PruneOnce deletes the results of idempotency keys that are older than age; after that a key is
// as new. It reports how many went. Nothing else deletes them.
func (c *Client) PruneOnce(ctx context.Context, age time.Duration) (int64, error) {
	if age < 0 {
		return 0, wrap("prune once", "", 0, invalid("the age %v is negative", age))
	}
	n, err := inBatches(func() (int64, error) {
		return c.queries.PruneOnce(ctx, c.schema.On(c.pool), jobsdb.PruneOnceParams{Age: age, MaxRows: pruneBatch})
	})
	return n, wrap("prune once", "", 0, err)
}
