package reportstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

// Whatever is asked of a store without its tables, the answer names the command that makes them,
// in the schema at hand, and has the database's own error in its chain.
func TestMissingTablesAreNamedWithTheCommand(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t) // with the leases' tables, so that only a part is missing
	mustExec(t, pool, `CREATE SCHEMA "odd 'one'"`)
	for name, flag := range map[string]string{
		"":          "",
		"pglease":   "",
		"nowhere":   " --schema 'nowhere'",
		"odd 'one'": ` --schema 'odd '\''one'\'''`,
	} {
		store, err := reportstore.New(pool, reportstore.Config{Schema: name})
		if err != nil {
			t.Fatal(err)
		}
		for op, err := range everyCall(t, pool, store) {
			var pg *pgconn.PgError
			var typed *reportstore.Error
			if !errors.Is(err, reportstore.ErrSchema) || !errors.As(err, &pg) || !errors.As(err, &typed) || (typed.Report != july && op != "check schema") {
				t.Errorf("%s in schema %q: %v", op, name, err)
				continue
			}
			if want := "run: pglease migrate up --line report" + flag + ": ERROR"; !strings.Contains(err.Error(), want) {
				t.Errorf("%s in schema %q: %v, want %q in it", op, name, err, want)
			}
			if errors.Is(err, reportstore.ErrNotFound) || refusal(err) {
				t.Errorf("%s in schema %q reads as an answer: %v", op, name, err)
			}
		}
	}
	if _, err := nowhere(t).Read(t.Context(), july); err == nil || errors.Is(err, reportstore.ErrSchema) {
		t.Errorf("an unreachable database reads as a missing table: %v", err)
	}
}

// everyCall returns the error of each of a store's methods.
func everyCall(t *testing.T, pool *pgxpool.Pool, store *reportstore.Store) map[string]error {
	t.Helper()
	errs := map[string]error{"establish": store.Establish(t.Context(), token(t, 41), july)}
	_, errs["publish"] = store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: july})
	_ = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, errs["publish in a transaction"] = store.PublishTx(t.Context(), tx, token(t, 41), reportstore.Report{ID: july})
		return errs["publish in a transaction"]
	})
	_, errs["read"] = store.Read(t.Context(), july)
	_, errs["read version"] = store.ReadVersion(t.Context(), july, 1)
	_, errs["history"] = store.History(t.Context(), july)
	_, errs["rejections"] = store.Rejections(t.Context(), july)
	_, errs["watermark"] = store.Watermark(t.Context(), july)
	_, _, errs["start run"] = store.StartRun(t.Context(), july, "2026-07", "")
	_, errs["finish run"] = store.FinishRun(t.Context(), token(t, 41), july, "2026-07", 1, 1)
	errs["check schema"] = store.CheckSchema(t.Context())
	_, errs["run"] = store.Run(t.Context(), july, "2026-07")
	return errs
}
