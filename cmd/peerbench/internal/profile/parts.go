package profile

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
)

const partsNote = "Each alone and prepared, in a transaction that is rolled back, whose begin and end do not count; but for " +
	"the COMMITs, which alone count there. What a part costs is what it costs beyond the SELECT 1 of this table."

// An executor is a pool or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A step is what a row is measured of.
type step struct {
	name, title string
	op          func(i int) error
}

// each does one step after another, each many times, on one session.
func (s *stage) each(_ context.Context, t *session, work string, steps []step) load {
	for _, step := range steps {
		s.row(work, step.name, step.title)
	}
	return load{cycle: func(ctx context.Context) error {
		for _, step := range steps {
			if err := s.meter.times(ctx, step.name, t.pid, many, step.op); err != nil {
				return err
			}
		}
		return nil
	}}
}

// A part is a piece of what statements of the library do.
type part struct {
	name, title, sql string
	args             func(i int) []any
	rows             int64 // that each touches or finds
}

func onKey(i int) []any     { return []any{key("parts", i)} }
func onNumber(i int) []any  { return []any{i} }
func unknown(i int) []any   { return []any{id(), key("parts", i)} }
func nothing(int) []any     { return nil }
func newRecord(i int) []any { return []any{key("parts", i), id()} }

func id() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	return id
}

const (
	leaseTable   = peers.HistorySchema + ".resource_lease"
	historyTable = peers.HistorySchema + ".lease_history"
	setBounds    = `SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'), current_setting('tcp_user_timeout'),
set_config('lock_timeout', '60000', true), set_config('idle_in_transaction_session_timeout', '60000', true), set_config('tcp_user_timeout', '60000', true)`
	setGrant = ` SET lease_id = gen_random_uuid(), fence = fence + 1, ttl = ttl, expires_at = clock_timestamp() + ttl WHERE resource_id = $1`
	record   = ` (resource_id, fence, owner_id, lease_id, request_id, acquired_at, expires_at, ended_at, ended)
SELECT $1, 1, 'profile', $2, $2, t, t, t, 'released' FROM clock_timestamp() AS t`
)

var parts = []part{
	{oneName, "SELECT 1", "SELECT 1", nothing, 1},
	{"part-update", "UPDATE of a row of the limit's table", updateRow, onNumber, 1},
	{"part-lock", "row lock: SELECT FOR UPDATE of the lease's row", "SELECT FROM " + leaseTable + " WHERE resource_id = $1 FOR UPDATE", onKey, 1},
	{"part-share", "row lock of a guard: SELECT FOR KEY SHARE of it", "SELECT FROM " + leaseTable + " WHERE resource_id = $1 FOR KEY SHARE", onKey, 1},
	{"part-bounds", "bounds of a guard: three settings are read and set", setBounds, nothing, 1},
	{"part-floor", "fence floor: the view", "SELECT floor FROM " + peers.HistorySchema + ".fence_floor", nothing, 1},
	{"part-switch", "whether history is on", "SELECT history FROM " + peers.HistorySchema + ".installation", nothing, 1},
	{"part-lookup", "history look-up: a request that is not there", "SELECT FROM " + historyTable + " WHERE request_id = $1 AND resource_id = $2", unknown, 0},
	{"part-end", "UPDATE of the lease's row as a release does it", "UPDATE " + leaseTable + " SET ended_at = clock_timestamp() WHERE resource_id = $1", onKey, 1},
	{"part-grant", "UPDATE of the lease's row as a grant does it, its trigger included", "UPDATE " + leaseTable + setGrant, onKey, 1},
	{"part-record", "history: INSERT of a row, with its two indexes", "INSERT INTO " + historyTable + record, newRecord, 1},
}

// Rows that others are compared with: each part costs what oneName does too.
const (
	oneName      = "part-select1"
	syncedName   = "part-commit"
	unsyncedName = "part-commit-unsynced"
)

// parts does them on rows of their own.
func (s *stage) parts(ctx context.Context) ([]load, error) {
	t, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.hold(ctx, t, "parts"); err != nil {
		return nil, err
	}
	for _, p := range parts {
		s.row("parts", p.name, p.title)
	}
	commits := map[string]string{
		s.row("parts", syncedName, "COMMIT of an UPDATE, synced"):       "on",
		s.row("parts", unsyncedName, "COMMIT of an UPDATE, not synced"): "off",
	}
	return []load{{cycle: func(ctx context.Context) error {
		for _, p := range parts {
			if err := s.part(ctx, t, p); err != nil {
				return err
			}
		}
		for i := range many / 4 {
			for row, setting := range commits {
				if err := s.commit(ctx, t, row, setting, i); err != nil {
					return err
				}
			}
		}
		return nil
	}}}, nil
}

func (s *stage) part(ctx context.Context, t *session, p part) error {
	tx, err := t.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	return s.meter.times(ctx, p.name, t.pid, many, func(i int) error { return p.once(ctx, tx, i) })
}

// once sends it as a query: pgx prepares those also where they have no arguments.
func (p part) once(ctx context.Context, tx pgx.Tx, i int) error {
	rows, err := tx.Query(ctx, p.sql, p.args(i)...)
	if err != nil {
		return err
	}
	rows.Close()
	if n := rows.CommandTag().RowsAffected(); rows.Err() == nil && n != p.rows {
		return fmt.Errorf("%s: %d rows, not %d", p.title, n, p.rows)
	}
	return rows.Err()
}

func (s *stage) commit(ctx context.Context, t *session, row, setting string, i int) error {
	tx, err := t.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := execute(ctx, tx, "SELECT set_config('synchronous_commit', $1, true)", setting); err != nil {
		return err
	}
	if err := execute(ctx, tx, updateRow, i); err != nil {
		return err
	}
	return s.meter.times(ctx, row, t.pid, 1, func(int) error { return tx.Commit(ctx) })
}
