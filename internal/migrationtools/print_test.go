package migrationtools_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	driver "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	_ "github.com/golang-migrate/migrate/v4/source/file" // the scheme of the source's URL
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	tern "github.com/jackc/tern/v2/migrate"
	"github.com/pressly/goose/v3"

	"github.com/pglease/pglease/internal/catalogue"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }

// A tool applies all files of a directory, or reverts them.
type tool func(ctx context.Context, pool *pgxpool.Pool, dir string, up bool) error

func TestPrintedFilesApply(t *testing.T) {
	t.Parallel()
	for format, test := range map[string]struct {
		run   tool
		start int // tern wants all numbers from 1 on
	}{
		"golang-migrate": {golangMigrate, 20260101},
		"goose":          {gooseUp, 7},
		"tern":           {ternUp, 1},
	} {
		for _, schema := range []string{"printed", `Odd "name"`} {
			t.Run(format+" "+schema, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				printFiles(t, "--format", format, "--dir", dir, "--start", fmt.Sprint(test.start), "--schema", schema, "--line", "all")
				pool := pgleasetest.Pool(t)
				apply(t, pool, test.run, dir, schema)
			})
		}
	}
}

func apply(t *testing.T, pool *pgxpool.Pool, run tool, dir, schema string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	empty := dump(t, pool, schema)
	want := native(t, pool, schema)
	for range 2 {
		if err := run(t.Context(), pool, dir, true); err != nil {
			t.Fatalf("up: %v", err)
		}
		if got := dump(t, pool, schema); got != want {
			t.Errorf("the tool made another catalogue than pglease:\n%s", catalogue.Differences(want, got))
		}
		if err := run(t.Context(), pool, dir, false); err != nil {
			t.Fatalf("down: %v", err)
		}
		if got := dump(t, pool, schema); got != empty {
			t.Errorf("the tool left:\n%s", catalogue.Differences(empty, got))
		}
	}
}

func printFiles(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "pglease", "migrate", "print"}, args...)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pglease migrate print: %v: %s", err, output)
	}
}

func dump(t *testing.T, pool *pgxpool.Pool, schema string) string {
	t.Helper()
	text, err := catalogue.Dump(t.Context(), pool, schema, "migrations_")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// native returns what pglease's own migrator makes, and takes it away again.
func native(t *testing.T, pool *pgxpool.Pool, schema string) string {
	t.Helper()
	m, err := migrations.New(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range migrations.Lines() {
		if _, err := m.Up(t.Context(), pool, line); err != nil {
			t.Fatal(err)
		}
	}
	made := dump(t, pool, schema)
	for _, line := range migrations.Lines() {
		if _, err := m.Down(t.Context(), pool, line); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

func golangMigrate(_ context.Context, pool *pgxpool.Pool, dir string, up bool) error {
	db, err := driver.WithInstance(stdlib.OpenDBFromPool(pool), &driver.Config{})
	if err != nil {
		return err
	}
	m, err := migrate.NewWithDatabaseInstance("file://"+dir, "pgx5", db)
	if err != nil {
		return err
	}
	if up {
		err = m.Up()
	} else {
		err = m.Down()
	}
	errSource, errDatabase := m.Close()
	return errors.Join(err, errSource, errDatabase)
}

func gooseUp(ctx context.Context, pool *pgxpool.Pool, dir string, up bool) error {
	db := stdlib.OpenDBFromPool(pool)
	defer func(db *sql.DB) { _ = db.Close() }(db)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS(dir))
	if err != nil {
		return err
	}
	if up {
		_, err = provider.Up(ctx)
	} else {
		_, err = provider.DownTo(ctx, 0)
	}
	return err
}

func ternUp(ctx context.Context, pool *pgxpool.Pool, dir string, up bool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	m, err := tern.NewMigrator(ctx, conn.Conn(), "public.schema_version")
	if err != nil {
		return err
	}
	if err := m.LoadMigrations(os.DirFS(dir)); err != nil {
		return err
	}
	if up {
		return m.Migrate(ctx)
	}
	return m.MigrateTo(ctx, 0)
}

// A service's own migrations must not see ours, nor ours theirs, whoever comes first.
func TestBesideAServicesOwnGolangMigrate_O2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"000001_orders.up.sql": "CREATE TABLE orders ()", "000001_orders.down.sql": "DROP TABLE orders",
		"000007_parcels.up.sql": "CREATE TABLE parcels ()", "000007_parcels.down.sql": "DROP TABLE parcels",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ours := func(ctx context.Context, pool *pgxpool.Pool, up bool) error {
		if up {
			return migrations.Up(ctx, pool, migrations.Lease)
		}
		return migrations.Down(ctx, pool, migrations.Lease)
	}
	theirs := func(ctx context.Context, pool *pgxpool.Pool, up bool) error {
		return golangMigrate(ctx, pool, dir, up)
	}
	type side func(context.Context, *pgxpool.Pool, bool) error
	for name, order := range map[string][2]side{"we come first": {ours, theirs}, "they come first": {theirs, ours}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			if err := ours(t.Context(), pool, false); err != nil {
				t.Fatal(err)
			}
			for _, up := range []bool{true, false, true} {
				for _, side := range order {
					if err := side(t.Context(), pool, up); err != nil {
						t.Fatalf("up %v: %v", up, err)
					}
				}
				checkBoth(t, pool, up)
			}
			// And one of them goes while the other stays.
			if err := order[0](t.Context(), pool, false); err != nil {
				t.Fatal(err)
			}
			if err := order[1](t.Context(), pool, true); err != nil && !errors.Is(err, migrate.ErrNoChange) {
				t.Errorf("the other one was disturbed: %v", err)
			}
		})
	}
}

func checkBoth(t *testing.T, pool *pgxpool.Pool, up bool) {
	t.Helper()
	state, err := migrations.Version(t.Context(), pool, migrations.Lease)
	if err != nil || (state.Version == state.Latest) != up || state.Dirty {
		t.Errorf("up %v: we stand at %+v, %v", up, state, err)
	}
	var theirs string
	const query = `SELECT coalesce(string_agg(version || ' ' || dirty, ','), '') FROM public.schema_migrations`
	if err := pool.QueryRow(t.Context(), query).Scan(&theirs); err != nil {
		t.Fatal(err)
	}
	if want := map[bool]string{true: "7 false", false: ""}[up]; !strings.EqualFold(theirs, want) {
		t.Errorf("up %v: they stand at %q, want %q", up, theirs, want)
	}
}
