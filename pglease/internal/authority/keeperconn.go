package authority

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// keeperConn is the connection that renewals run on: beside the pool, so that an application
// which holds every connection of its pool does not lose its leases. It is opened at first use and
// again after a failure.
type keeperConn struct {
	pool *pgxpool.Pool

	mu     sync.Mutex
	conn   *pgx.Conn
	closed bool
}

var errKeeperClosed = errors.New("the renewal connection is closed")

// use runs f on the connection. A connection on which f failed in a way that leaves its state in
// doubt is given up.
func (k *keeperConn) use(ctx context.Context, f func(*pgx.Conn) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errKeeperClosed
	}
	if k.conn == nil || k.conn.IsClosed() {
		conn, err := k.open(ctx)
		if err != nil {
			return err
		}
		k.conn = conn
	}
	err := replicated(k.conn.PgConn(), func() error { return f(k.conn) })
	if k.conn.PgConn().TxStatus() != 'I' || (err != nil && KindOf(err) != Definitive) {
		k.drop(ctx)
	}
	return err
}

// open connects as the pool does, its hooks included.
func (k *keeperConn) open(ctx context.Context) (*pgx.Conn, error) {
	pool := k.pool.Config()
	config := pool.ConnConfig.Copy()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	WatchNotices(&config.Config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if pool.AfterConnect != nil {
		if err := pool.AfterConnect(ctx, conn); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	return conn, nil
}

// drop closes the connection without waiting for a server that may be silent: closing with an
// ended context skips the farewell.
func (k *keeperConn) drop(ctx context.Context) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_ = k.conn.Close(ended) // it is given up either way
	k.conn = nil
}

// close gives the connection up. That the farewell failed, on one that was broken already, says
// nothing to anybody.
func (k *keeperConn) close(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.conn != nil {
		_ = k.conn.Close(ctx)
		k.conn = nil
	}
}
