package plans_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A wait in the server, and who ends it, read the rows that they are asked for, by plans that were made when the tables were
// small.
func TestAWaitReadsAFewRows(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{0, 1, 300} {
		for _, analyzed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d rows, analyzed %v", rows, analyzed), func(t *testing.T) {
				t.Parallel()
				pool := neverAnalyzed(t)
				addRows(t, pool, 1, rows)
				if analyzed {
					if _, err := pool.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
						t.Fatal(err)
					}
				}
				err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
					for range 8 { // the plans of a function are made for the first values, and after five times for any
						if _, err := waitRead(t, conn.Conn()); err != nil {
							return err
						}
					}
					addRows(t, pool, rows+1, 20_000) // on another connection: this one would forget its plans
					read, err := waitRead(t, conn.Conn())
					if read > 3*2+1 { // three resources, twice, and the client
						t.Errorf("%d rows were read", read)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// waitRead waits for grants of three resources and rouses a client, and returns how many rows were read.
func waitRead(t *testing.T, conn *pgx.Conn) (read int, err error) {
	t.Helper()
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		before, err := rowsRead(t, tx)
		if err != nil {
			return err
		}
		_, err = tx.Exec(t.Context(), "SELECT count(*) FROM pglease.lease_await(1::bigint << 40, '{r/1,r/2,r/3}', ARRAY[gen_random_uuid()], '0'), pglease.lease_rouse($1::uuid)", id("client/5"))
		if err != nil {
			return err
		}
		after, err := rowsRead(t, tx)
		read = after - before
		return err
	})
	return read, err
}
