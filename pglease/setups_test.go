package pglease_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// TestEveryExecMode_T4: with the default isolation too that the client has to override.
func TestEveryExecMode_T4(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		for _, level := range []string{"read committed", "serializable"} {
			t.Run(mode.String()+"/"+level, func(t *testing.T) {
				t.Parallel()
				wholeLife(t, pools.Open(t, pgleasetest.URL(t), func(c *pgxpool.Config) {
					c.ConnConfig.DefaultQueryExecMode = mode
					c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
				}), pglease.Config{})
			})
		}
	}
}

// sessionSettings are what a role, a database or a connection may bring.
var sessionSettings = map[string][]string{
	"a time zone ahead, verbose intervals": {"TimeZone = 'Pacific/Chatham'", "IntervalStyle = postgres_verbose", "DateStyle = German, DMY"},
	"a time zone behind, SQL intervals":    {"TimeZone = 'America/St_Johns'", "IntervalStyle = sql_standard", "DateStyle = SQL, MDY"},
	"ISO intervals, other formats":         {"IntervalStyle = iso_8601", "DateStyle = Postgres, YMD", "extra_float_digits = -15", "bytea_output = escape"},
	"repeatable read, empty search_path":   {"default_transaction_isolation = 'repeatable read'", "search_path = ''"},
	"read uncommitted, odd search_path":    {"default_transaction_isolation = 'read uncommitted'", "search_path = nowhere, pg_temp"},
	"a search_path that shadows our names": {"search_path = rogue, public"},
	"a search_path that shadows the clock": {"search_path = rogue, pg_catalog"},
	"short limits":                         {"statement_timeout = '3s'", "lock_timeout = '2s'", "idle_in_transaction_session_timeout = '1s'"},
	"asynchronous and deferrable":          {"synchronous_commit = off", "default_transaction_deferrable = on"},
	"other plans":                          {"plan_cache_mode = force_generic_plan", "enable_indexscan = off", "enable_nestloop = off", "jit = off"},
	"other words for strings":              {"standard_conforming_strings = off", "backslash_quote = on", "client_encoding = LATIN1"},
}

// rogue is a schema with the names of our tables and of a function that we call.
const rogue = `CREATE SCHEMA rogue;
CREATE TABLE rogue.resource_lease (resource_id text);
CREATE TABLE rogue.lease_history (resource_id text);
CREATE TABLE rogue.lease_waiter (resource_id text);
CREATE TABLE rogue.installation (history text);
CREATE VIEW rogue.fence_floor AS SELECT 1 AS floor;
CREATE FUNCTION rogue.gen_random_uuid() RETURNS uuid LANGUAGE sql AS $$ SELECT '00000000-0000-0000-0000-000000000001'::uuid $$;
CREATE FUNCTION rogue.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2001-01-01 00:00+00'::timestamptz $$`

func TestEverySessionSetting_T5(t *testing.T) {
	t.Parallel()
	for name, settings := range sessionSettings {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
			if mode == pgx.QueryExecModeSimpleProtocol && name == "other words for strings" {
				continue // pgx itself refuses it
			}
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				url := pgleasetest.URL(t)
				setOnRole(t, url, settings...)
				wholeLife(t, pools.Open(t, url, func(c *pgxpool.Config) {
					c.ConnConfig.DefaultQueryExecMode = mode
				}), pglease.Config{})
			})
		}
	}
}

// setOnRole makes the settings those of the URL's role in its database.
func setOnRole(t *testing.T, url string, settings ...string) {
	t.Helper()
	admin := pools.Open(t, url)
	at := admin.Config().ConnConfig
	execute(t, admin, rogue)
	for _, setting := range settings {
		execute(t, admin, fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s", at.User, at.Database, setting))
	}
}

// TestReadOnlyByDefault: nothing can be leased so, and the error says why.
func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	url := pgleasetest.URL(t)
	setOnRole(t, url, "default_transaction_read_only = on")
	client := newClient(t, pools.Open(t, url), pglease.Config{})
	_, err := client.TryAcquire(t.Context(), "r")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "25006" || !strings.Contains(err.Error(), `acquire "r"`) || errors.Is(err, pglease.ErrHeld) {
		t.Errorf("TryAcquire: %v", err)
	}
	if d, err := client.Describe(t.Context(), "r"); err != nil || d.Held {
		t.Errorf("Describe: %+v, %v", d, err)
	}
}

var schemaNames = map[string]string{
	"upper case":     "PGLease",
	"spaces":         " my leases ",
	"quotes":         `it's "theirs"`,
	"punctuation":    `a.b;--/*c*/\d$1%s{}`,
	"60 bytes":       strings.Repeat("x", 60),
	"emoji":          "🔑🔒",
	"a keyword":      "table",
	"a search_path":  "pglease, public",
	"a line's break": "a\nb",
}

func TestEverySchemaName(t *testing.T) {
	t.Parallel()
	for name, schema := range schemaNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgleasetest.Pool(t)
			install(t, pool, schema)
			wholeLife(t, pool, pglease.Config{Schema: schema})
			var touched int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pglease.resource_lease").Scan(&touched); err != nil || touched != 0 {
				t.Errorf("%d rows in the default schema, %v", touched, err)
			}
		})
	}
}

// install puts the tables for leases into another schema.
func install(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	m, err := migrations.New(schema)
	if err == nil {
		_, err = m.Up(t.Context(), pool, migrations.Lease)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTwoSchemasNeverTouch: one name is leased in both, and waited for in both.
func TestTwoSchemasNeverTouch(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	install(t, pool, "other")
	var held [2]*pglease.Lease
	var waiting [2]<-chan served
	for i, schema := range []string{"", "other"} {
		client, _ := observed(t, pool, pglease.Config{Schema: schema})
		waiter, events := observed(t, pool, pglease.Config{Schema: schema})
		held[i] = acquire(t, client, "r")
		waiting[i] = waitFor(t.Context(), waiter, "r")
		events.await(t, pglease.EventWaiting, 1)
	}
	for i := range held {
		release(t, held[i])
		next := <-waiting[i]
		if next.err != nil {
			t.Fatal(next.err)
		}
		if i == 0 {
			wantState(t, held[1], pglease.Held)
			select {
			case other := <-waiting[1]:
				t.Fatalf("a release in one schema served the other: %+v", other)
			default:
			}
		}
		release(t, next.lease)
	}
}
