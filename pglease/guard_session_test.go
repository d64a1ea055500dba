package pglease_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/pools"
	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// guardStory goes once through every statement of the guard, on a pool of the given sessions.
func guardStory(t *testing.T, pool *pgxpool.Pool, config pglease.Config) {
	t.Helper()
	schemaName := "pglease"
	if config.Schema != "" {
		schemaName = config.Schema
	}
	in := pglease.GuardSchema(schemaName)
	lease := acquire(t, newClient(t, pool, config), "r")
	for _, level := range guardedLevels {
		options := pglease.GuardTxOptions(pgx.TxOptions{IsoLevel: level})
		nothing := func(pgx.Tx) error { return nil }
		if err := pglease.GuardedTx(t.Context(), pool, lease, nothing, options); err != nil {
			t.Errorf("%s: %v", level, err)
		}
		if err := pglease.GuardedTokenTx(t.Context(), pool, lease.Token(), nothing, options, in); err != nil {
			t.Errorf("%s, token: %v", level, err)
		}
	}
	token := lease.Token()
	release(t, lease)
	tx := begin(t, pool, pgx.ReadCommitted)
	if err := pglease.GuardToken(t.Context(), tx, token, in); !errors.Is(err, pglease.ErrReleased) || !errors.Is(err, pglease.ErrLost) {
		t.Errorf("released: %v", err)
	}
	if err := lease.Guard(t.Context(), tx); !errors.Is(err, pglease.ErrReleased) {
		t.Errorf("released: %v", err)
	}
}

func TestGuardInEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			guardStory(t, pools.Open(t, pgleasetest.URL(t), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }), pglease.Config{})
		})
	}
}

func TestGuardUnderOtherSettings(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"search_path":   {"search_path": `"nowhere"`},
		"isolation":     {"default_transaction_isolation": "serializable"},
		"time zone":     {"TimeZone": "Asia/Kathmandu", "DateStyle": "SQL, DMY"},
		"sql_standard":  {"IntervalStyle": "sql_standard", "lock_timeout": "90min", "idle_in_transaction_session_timeout": "3d"},
		"iso_8601":      {"IntervalStyle": "iso_8601", "lock_timeout": "500", "idle_in_transaction_session_timeout": "61s"},
		"postgres_verb": {"IntervalStyle": "postgres_verbose", "lock_timeout": "25h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guardStory(t, pools.Open(t, pgleasetest.URL(t), func(c *pgxpool.Config) {
				for key, value := range settings {
					c.ConnConfig.RuntimeParams[key] = value
				}
			}), pglease.Config{})
		})
	}
}

func TestGuardInAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := pgleasetest.Pool(t)
	const name = `Other "schema"`
	migrator, err := migrations.New(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Up(t.Context(), pool, migrations.Lease); err != nil {
		t.Fatal(err)
	}
	guardStory(t, pool, pglease.Config{Schema: name})
	tx := begin(t, pool, pgx.ReadCommitted)
	token, err := fence.Parse("1:0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11:r")
	if err != nil {
		t.Fatal(err)
	}
	if err := pglease.GuardToken(t.Context(), tx, token, pglease.GuardSchema("pg_no")); !errors.Is(err, pglease.ErrInvalidConfig) {
		t.Errorf("impossible schema: %v", err)
	}
}
