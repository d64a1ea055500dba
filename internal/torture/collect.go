//go:build linux

package torture

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/torture/history"
)

// Every tenure that was granted: what ended is in the history, and the last of each resource, if
// nobody has ended it, in its row.
const selectTenures = `
SELECT resource_id, fence, lease_id::text, request_id::text, owner_id, acquired_at, expires_at,
       ended_at, ended, coalesce(ticket, 0)
FROM pglease.lease_history WHERE fence IS NOT NULL AND starts_with(resource_id, $1)
UNION ALL
SELECT resource_id, fence, lease_id::text, request_id::text, owner_id, acquired_at, expires_at,
       NULL, '', coalesce(ticket, 0)
FROM pglease.resource_lease WHERE ended_at IS NULL AND starts_with(resource_id, $1)
ORDER BY 1, 2`

const selectChanges = `
SELECT number, resource_id, fence, lease_id::text, since, expires_at, ended
FROM torture.lease_change WHERE starts_with(resource_id, $1) ORDER BY number`

const selectCounted = `
SELECT resource_id, number, key, fence, lease_id::text, at, n
FROM torture.counted WHERE starts_with(resource_id, $1) ORDER BY number`

const selectEffects = `
SELECT resource_id, number, key, fence, lease_id::text, at, 0::bigint
FROM torture.effect WHERE starts_with(resource_id, $1) ORDER BY number`

const selectVersions = `
SELECT report_id, version, convert_from(body, 'UTF8'), coalesce(fence, 0), coalesce(lease_id::text, ''), published_at, 0::bigint
FROM pglease.report_version WHERE starts_with(report_id, $1) ORDER BY report_id, version`

// collect reads what the authority and the protected resources have on record of a leg.
func (s *Servers) collect(ctx context.Context, prefix string, h *history.History) error {
	err := onServer(ctx, s.authorityURL(), func(ctx context.Context, conn *pgx.Conn) (err error) {
		if h.Tenures, err = rows(ctx, conn, selectTenures, prefix, scanTenure); err != nil {
			return err
		}
		if h.Changes, err = rows(ctx, conn, selectChanges, prefix, scanChange); err != nil {
			return err
		}
		counted, err := rows(ctx, conn, selectCounted, prefix, scanWrite(history.Counters))
		h.Writes = append(h.Writes, counted...)
		return err
	})
	if err != nil {
		return err
	}
	return onServer(ctx, s.resourceURL(), func(ctx context.Context, conn *pgx.Conn) error {
		for store, sql := range map[string]string{history.Reports: selectVersions, history.Watermarks: selectEffects} {
			written, err := rows(ctx, conn, sql, prefix, scanWrite(store))
			if err != nil {
				return err
			}
			h.Writes = append(h.Writes, written...)
		}
		return nil
	})
}

func rows[T any](ctx context.Context, conn *pgx.Conn, sql, prefix string, scan pgx.RowToFunc[T]) ([]T, error) {
	found, err := conn.Query(ctx, sql, prefix)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, scan)
}

func scanTenure(row pgx.CollectableRow) (t history.Tenure, err error) {
	var ended *time.Time
	err = row.Scan(&t.Resource, &t.Fence, &t.Lease, &t.Request, &t.Owner, &t.Acquired, &t.Expires, &ended, &t.How, &t.Ticket)
	if ended != nil {
		t.Ended = *ended
	}
	return t, err
}

func scanChange(row pgx.CollectableRow) (c history.Change, err error) {
	err = row.Scan(&c.Number, &c.Resource, &c.Fence, &c.Lease, &c.At, &c.Expires, &c.Ended)
	return c, err
}

func scanWrite(store string) pgx.RowToFunc[history.Write] {
	return func(row pgx.CollectableRow) (history.Write, error) {
		w := history.Write{Store: store}
		err := row.Scan(&w.Resource, &w.Number, &w.Key, &w.Fence, &w.Lease, &w.At, &w.Count)
		return w, err
	}
}
