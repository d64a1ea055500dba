package migrations

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	want := []string{
		"CREATE TABLE a (b text DEFAULT ';' /* ; */);",
		"DO $$ BEGIN; -- '\nEND; $$;",
		"CREATE FUNCTION f() AS $body$ $$ ; $$ $body$;",
		`COMMENT ON TABLE "a;b" IS 'it''s; here';`,
		`SELECT E'\';', 'C:\';`,
		"SELECT $1",
	}
	text := "-- first; line\n\n" + strings.Join(want, "\n/* between; */ -- and;\n")
	var got []string
	for _, s := range split(text) {
		got = append(got, s.text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, empty := range []string{"", ";", "-- only\n", " ; ;\n"} {
		if got := split(empty); len(got) != 0 {
			t.Errorf("%q has %d statements", empty, len(got))
		}
	}
}

func TestAtFault(t *testing.T) {
	t.Parallel()
	text := "SELECT 'é';\nSELECT 2;\nSELECT 3"
	for _, test := range []struct {
		position int32
		done     int
		want     string
	}{
		{0, 0, "SELECT 'é';"},
		{0, 1, "SELECT 2;"},
		{11, 0, "SELECT 'é';"},
		{13, 0, "SELECT 2;"}, // in characters, as Postgres counts
		{29, 0, "SELECT 3"},
		{1000, 2, "SELECT 3"},
		{0, 3, ""},
	} {
		if got := atFault(text, test.done, &pgconn.PgError{Position: test.position}); got != test.want {
			t.Errorf("position %d after %d statements: %q, want %q", test.position, test.done, got, test.want)
		}
	}
}
