package reportstore_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// documentedRights is the SQL of docs/operations.md for reports, for a role.
func documentedRights(t *testing.T, role string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```sql\n-- report\n")
	sql, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/operations.md has no rights for reports")
	}
	return strings.ReplaceAll(sql, " TO app;", " TO "+role+";")
}

// Whoever has the rights of the docs can do all that a store does, and cannot touch what is on record.
func TestTheRightsForReportsAreEnough(t *testing.T) {
	t.Parallel()
	owner, _ := setUp(t)
	role := "app_" + owner.Config().ConnConfig.Database
	quoted := pgx.Identifier{role}.Sanitize()
	for _, sql := range []string{"CREATE ROLE " + quoted, documentedRights(t, quoted)} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	t.Cleanup(func() {
		if _, err := owner.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted); err != nil {
			t.Logf("the role stays: %v", err)
		}
	})
	config := owner.Config()
	config.ConnConfig.RuntimeParams["role"] = role
	limited, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	livesWith(t, newStore(t, limited))
	for _, sql := range []string{
		"DELETE FROM pglease.report_version", "UPDATE pglease.report_rejection SET owner_id = ''", "DELETE FROM pglease.reports",
	} {
		_, err := limited.Exec(t.Context(), sql)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// livesWith does what a store can do.
func livesWith(t *testing.T, store *reportstore.Store) {
	t.Helper()
	if err := store.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if err := store.Establish(t.Context(), token(t, 1), july); err != nil {
		t.Error(err)
	}
	run, _, err := store.StartRun(t.Context(), july, period, "W")
	if err != nil {
		t.Fatal(err)
	}
	publish(t, store, token(t, 2), "first", 0, 1)
	publish(t, store, token(t, 2), "second", 1, 2)
	if _, err := store.Publish(t.Context(), token(t, 1), reportstore.Report{ID: july, Body: []byte("late")}); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("a stale owner: %v", err)
	}
	if _, err := store.FinishRun(t.Context(), token(t, 2), july, period, run.Number, 2); err != nil {
		t.Error(err)
	}
	if read, err := store.Read(t.Context(), july); err != nil || string(read.Body) != "second" {
		t.Errorf("read %q, %v", read.Body, err)
	}
	if rejections, err := store.Rejections(t.Context(), july); err != nil || len(rejections) != 1 {
		t.Errorf("%d rejections, %v", len(rejections), err)
	}
	if history, err := store.History(t.Context(), july); err != nil || len(history) != 2 {
		t.Errorf("%d versions, %v", len(history), err)
	}
}
