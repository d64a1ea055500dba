package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

func zookeeperPeer() Peer {
	return Peer{
		Name: "zookeeper", Title: "ZooKeeper lock recipe", Server: servers.ZooKeeper,
		Facts: Facts{
			Fence:    "the node's sequence number or zxid grows; the recipe does not give it out, and nobody checks it",
			Order:    "in the order in which they came",
			Wakes:    "told: a watch on the one ahead",
			Durable:  "yes, synced before it answers; here one server, in service three or five",
			Renews:   "one session with all of its locks, by a ping of the client's own; nothing is written",
			Lacks:    "no transaction with the data that is protected; no record of who held what; the recipe's wait takes no context",
			InOrder:  true,
			Packages: "github.com/go-zookeeper/zk",
		},
		Open: openZooKeeper,
	}
}

// openZooKeeper gives each session a connection of its own: with go-zookeeper they are the same.
func openZooKeeper(ctx context.Context, o Options) (Crowd, error) {
	var ends closers
	crowd := Crowd{}
	for range o.N {
		conn, events, err := zk.Connect([]string{o.Address}, o.TTL, zk.WithLogger(silent{}), zk.WithDialer(counted(o.Count)))
		if err != nil {
			ends.close()
			return Crowd{}, err
		}
		ends.add(conn.Close)
		if err := awaitSession(ctx, events); err != nil {
			ends.close()
			return Crowd{}, err
		}
		crowd.Sessions = append(crowd.Sessions, zkSession{conn})
	}
	crowd.Close = ends.close
	return crowd, nil
}

func awaitSession(ctx context.Context, events <-chan zk.Event) error {
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return errors.New("zookeeper: the connection was closed")
			}
			if e.State == zk.StateHasSession {
				return nil
			}
		case <-late.C:
			return errors.New("zookeeper: no session within 10 s")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}

// counted counts the packets that connections send: the client writes each in one piece.
func counted(count *measure.Counter) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, count}, nil
	}
}

type countedConn struct {
	net.Conn
	count *measure.Counter
}

// Write implements net.Conn.
func (c countedConn) Write(b []byte) (int, error) {
	c.count.Add(1)
	return c.Conn.Write(b)
}

type zkSession struct{ conn *zk.Conn }

// Acquire implements Session. The recipe has no way to try, and does not end with the context.
func (s zkSession) Acquire(_ context.Context, key string, _ bool) (func(context.Context) error, error) {
	lock := zk.NewLock(s.conn, "/peerbench/"+key, zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", key, err)
	}
	return func(context.Context) error { return lock.Unlock() }, nil
}
