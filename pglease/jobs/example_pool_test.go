package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// exampleTB stands in for the test that an example does not have.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                           {}
func (*exampleTB) Context() context.Context          { return context.Background() }
func (*exampleTB) Failed() bool                      { return false }
func (*exampleTB) Name() string                      { return "Example" }
func (*exampleTB) Logf(format string, args ...any)   { fmt.Printf(format+"\n", args...) }
func (*exampleTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (tb *exampleTB) Cleanup(f func())               { tb.cleanups = append(tb.cleanups, f) }

// examplePool returns a pool to a migrated database, and what ends it.
func examplePool() (*pgxpool.Pool, func()) {
	tb := &exampleTB{}
	pool := pgleasetest.Pool(tb, migrations.Jobs)
	return pool, func() {
		for _, f := range slices.Backward(tb.cleanups) {
			f()
		}
	}
}
