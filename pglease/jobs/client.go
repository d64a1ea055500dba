package jobs

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/schema"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

// A Client adds, claims and ends jobs. It is safe for concurrent use and holds nothing that needs
// closing; the pool stays the caller's. The zero Client is of no use: call New.
type Client struct {
	config  Config
	pool    *pgxpool.Pool
	schema  *schema.Schema
	queries *jobsdb.Queries
	events  *events // a worker's; nil where the client is the caller's own
	fronts  fronts

	reaped   atomic.Int64 // when Claim last looked for claims that are over, in ns since began
	promoted atomic.Int64 // when Claim last looked at partitions
	began    time.Time
}

// New returns a client on the pool's database. It sends nothing; the tables are made by the line
// "jobs" of the migrations. The error matches ErrInvalidConfig and tells all that is wrong.
func New(pool *pgxpool.Pool, config Config) (*Client, error) {
	config, s, err := config.filled()
	if pool == nil {
		err = errors.Join(err, errors.Join(ErrInvalidConfig, errors.New("the pool is nil")))
	}
	if err != nil {
		return nil, wrap("new", "", 0, err)
	}
	return &Client{config: config, pool: pool, schema: s, queries: jobsdb.New(), began: time.Now()}, nil
}

// CheckSchema returns nil if the database has the tables that this library needs. Otherwise the
// error matches ErrSchema and names the command to run.
func (c *Client) CheckSchema(ctx context.Context) error {
	_, err := c.queries.Signalled(ctx, c.schema.On(c.pool))
	return wrap("check schema", "", 0, err)
}

// due tells, once an interval, that something is to be done.
func (c *Client) due(last *atomic.Int64, every time.Duration) bool {
	now, then := int64(time.Since(c.began)), last.Load()
	return (then == 0 || now-then >= int64(every)) && last.CompareAndSwap(then, now)
}
