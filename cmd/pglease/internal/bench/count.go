package bench

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// counter counts the statements that connections send, and how often they send any.
type counter struct{ statements, trips atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.statements.Add(1)
	c.trips.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	c.statements.Add(int64(data.Batch.Len()))
	c.trips.Add(1)
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// uncounted is the tracer of a pool whose statements are not ours.
type uncounted struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (uncounted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (uncounted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// cost is what has been spent up to a moment.
type cost struct {
	statements int64 // sent by this process, those of the limits excepted
	trips      int64 // in which they were sent: the statements of a batch go together
	wal        int64 // bytes, written by the whole server
}

func (s *stage) spent(ctx context.Context) (cost, error) {
	c := cost{statements: s.counter.statements.Load(), trips: s.counter.trips.Load()}
	err := s.control.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&c.wal)
	return c, err
}
