package measure

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// A Counter counts requests. As a tracer of pgx it counts statements, those of a batch one by one.
type Counter struct{ n atomic.Int64 }

// Add counts n more.
func (c *Counter) Add(n int) { c.n.Add(int64(n)) }

// Count is how many there were.
func (c *Counter) Count() int64 { return c.n.Load() }

// TraceQueryStart implements pgx.QueryTracer.
func (c *Counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (c *Counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (c *Counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	c.Add(data.Batch.Len())
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (c *Counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (c *Counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
