package jobs

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connect opens a connection beside the pool, as the pool does, its hooks included. Handlers may
// hold every connection of the pool; a worker's heartbeat must not wait for them.
func connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	connConfig := config.ConnConfig.Copy()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, connConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, connConfig)
	if err != nil {
		return nil, err
	}
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, conn); err != nil {
			hangUp(ctx, conn)
			return nil, err
		}
	}
	return conn, nil
}

// hangUp closes a connection without waiting for a server that may be silent: with an ended
// context there is no farewell.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_ = conn.Close(ended) // it is given up either way
}
