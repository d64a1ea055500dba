package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/jobs"
)

// A step of a saga, and what takes it back. Both are transactions; they are run once each.
type step struct {
	name     string
	do, undo func(context.Context, pgx.Tx) error
}

// errRefused, returned by a step, ends the saga: what was done before is taken back. Any other
// error is trouble that may pass: the job fails, and the saga goes on where it was.
var errRefused = errors.New("refused")

// saga runs the steps in order. It is called by each attempt at its job and finds out by the keys
// of Once how far the attempts before had come, wherever they were killed. It reports whether all
// steps were done; if not, all are taken back.
func saga(ctx context.Context, pool *pgxpool.Pool, name string, steps []step) (bool, error) {
	for i, s := range steps {
		done, err := stepOnce(ctx, pool, name+"/do/"+s.name, s.do)
		if err != nil {
			return false, err
		}
		if done {
			continue
		}
		for _, before := range slices.Backward(steps[:i]) {
			if _, err := stepOnce(ctx, pool, name+"/undo/"+before.name, before.undo); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	return true, nil
}

// stepOnce commits a step together with the record that it was done, or was refused.
func stepOnce(ctx context.Context, pool *pgxpool.Pool, key string, fn func(context.Context, pgx.Tx) error) (done bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		done, _, err = jobs.Once(ctx, tx, key, func(ctx context.Context, tx pgx.Tx) (bool, error) {
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return fn(ctx, tx) })
			if errors.Is(err, errRefused) {
				return false, nil // a refusal is a result, and stays one
			}
			return err == nil, err
		})
		return err
	})
	return done, err
}

// noting makes a step that notes in a table that it ran.
func noting(what string, then error) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO journal (entry) VALUES ($1)", what)
		return errors.Join(err, then)
	}
}

const journalTable = "CREATE TABLE journal (id int GENERATED ALWAYS AS IDENTITY, entry text)"

// A saga: a journey is booked in steps, the last of which is refused. The first attempt dies after
// two steps; the second one does not repeat them.
func ExampleOnce_saga() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	if _, err := pool.Exec(ctx, journalTable); err != nil {
		panic(err)
	}
	crash := errors.New("the process dies")
	steps := []step{
		{"flight", noting("flight booked", nil), noting("flight cancelled", nil)},
		{"hotel", noting("hotel booked", nil), noting("hotel cancelled", nil)},
		{"car", noting("never committed", crash), noting("", nil)},
	}
	_, err := saga(ctx, pool, "journey/7", steps)
	fmt.Println("first attempt:", err != nil)
	steps[2].do = noting("never committed", errRefused)
	booked, err := saga(ctx, pool, "journey/7", steps)
	fmt.Println("second attempt: booked", booked, err)
	fmt.Println(journal(ctx, pool))
	// Output:
	// first attempt: true
	// second attempt: booked false <nil>
	// [flight booked hotel booked hotel cancelled flight cancelled]
}

func journal(ctx context.Context, pool *pgxpool.Pool) []string {
	rows, err := pool.Query(ctx, "SELECT entry FROM journal ORDER BY id")
	if err != nil {
		panic(err)
	}
	entries, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		panic(err)
	}
	return entries
}
