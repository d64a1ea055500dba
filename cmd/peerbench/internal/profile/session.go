package profile

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
)

// leaseTTL is long, so that no renewal falls into a run where none is wanted.
const leaseTTL = time.Hour

// A session is a pool of one connection, and knows the server's processes of that and of all that a client makes beside
// the pool: those use its hooks too.
type session struct {
	*pgxpool.Pool
	pid uint32 // of the pool's only connection

	mu  sync.Mutex
	all []uint32
}

func (s *stage) session(ctx context.Context) (*session, error) {
	config, err := pgxpool.ParseConfig(s.address)
	if err != nil {
		return nil, err
	}
	t := &session{}
	config.MaxConns = 1
	config.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.all = append(t.all, c.PgConn().PID())
		return nil
	}
	if t.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	s.atEnd(t.Close)
	return t, t.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&t.pid)
}

// alive returns the processes of all its connections that are there still.
func (t *session) alive() []uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(pid uint32) bool {
		_, err := spentBy(pid)
		return err != nil
	})
	return slices.Clone(t.all)
}

// client returns one on the session. What it holds at the end goes with the server.
func (s *stage) client(ctx context.Context, t *session, config pglease.Config) (*pglease.Client, error) {
	if config.TTL == 0 {
		config.TTL = leaseTTL
	}
	client, err := pglease.New(ctx, t.Pool, config)
	if err == nil {
		s.atEnd(func() { closeNow(ctx, client) })
	}
	return client, err
}

// closeNow ends a client without releasing what it holds.
func closeNow(ctx context.Context, client *pglease.Client) {
	ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	_ = client.Close(ended)
}
