package peers

import (
	"context"
	"errors"
	"hash/fnv"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

func advisoryPeer() Peer {
	return Peer{
		Name: "advisory", Title: "advisory locks, a session each", Server: servers.Postgres,
		Facts: Facts{
			Fence:    "none",
			Order:    "in the order in which they came",
			Wakes:    "told: the server answers the waiting statement",
			Durable:  "no: in the server's memory, gone with the session or the server",
			Renews:   "none needed: the lock lives as long as the connection",
			Lacks:    "no TTL: a host that is cut off keeps its lock until TCP gives up, two hours by default; a connection for each holder and each waiter, and not through a transaction pooler; no owner, no record",
			InOrder:  true,
			Packages: "github.com/jackc/pgx/v5",
		},
		Open: openAdvisory,
	}
}

func openAdvisory(ctx context.Context, o Options) (Crowd, error) {
	var ends closers
	crowd := Crowd{}
	config, err := pgx.ParseConfig(o.Address)
	if err != nil {
		return Crowd{}, err
	}
	config.Tracer = o.Count
	for range o.N {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			ends.close()
			return Crowd{}, err
		}
		ends.add(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
		crowd.Sessions = append(crowd.Sessions, advisorySession{conn})
	}
	crowd.Close = ends.close
	return crowd, nil
}

type advisorySession struct{ conn *pgx.Conn }

var errNotLocked = errors.New("advisory lock: not got, or not held")

// Acquire implements Session.
func (s advisorySession) Acquire(ctx context.Context, key string, wait bool) (func(context.Context) error, error) {
	id := advisoryKey(key)
	if wait {
		if _, err := s.conn.Exec(ctx, "SELECT pg_advisory_lock($1)", id); err != nil {
			return nil, err
		}
	} else if err := s.ask(ctx, "SELECT pg_try_advisory_lock($1)", id); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return s.ask(ctx, "SELECT pg_advisory_unlock($1)", id) }, nil
}

func (s advisorySession) ask(ctx context.Context, statement string, id int64) error {
	var ok bool
	err := s.conn.QueryRow(ctx, statement, id).Scan(&ok)
	if err == nil && !ok {
		err = errNotLocked
	}
	return err
}

func advisoryKey(key string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails, by its documentation
	return int64(h.Sum64())
}
