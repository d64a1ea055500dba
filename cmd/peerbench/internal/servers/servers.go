// Package servers starts what the peers run on: a Postgres, an etcd, a ZooKeeper and a Redis, each
// on a loopback port and with data of its own.
//
// All of them live beside the Postgres: as its user, below its directory. They end with Stop, and
// also when this process is killed: then the kernel ends them, and the next start of any Postgres of
// this kind removes the directory.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/pglease/pglease/internal/postgres"
)

// Kinds of servers.
const (
	Postgres  = "postgres"
	Etcd      = "etcd"
	ZooKeeper = "zookeeper"
	Redis     = "redis"
)

// A Server is one that runs.
type Server struct {
	Kind    string
	Address string // a URL for Postgres, host:port for the others
	About   string // version and durability, for a table
}

// Set is the servers of one run.
type Set struct {
	postgres   *postgres.Server
	companions []*postgres.Companion
}

// startTime bounds the start of one server.
const startTime = time.Minute

// Start starts the Postgres; the others are added to it.
func Start(ctx context.Context, maxConnections int) (*Set, Server, error) {
	pg, err := postgres.Start(ctx, postgres.Options{Durable: true, MaxConnections: maxConnections})
	if err != nil {
		return nil, Server{}, err
	}
	return &Set{postgres: pg}, Server{
		Kind: Postgres, Address: pg.URL(),
		About: pg.Source() + ", fsync, synchronous_commit and full_page_writes on, else its defaults",
	}, nil
}

// Add starts another server. The error matches ErrMissing where this machine does not have it.
func (s *Set) Add(ctx context.Context, kind string) (Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	start, ok := map[string]func(*Set, context.Context) (Server, error){
		Etcd: (*Set).etcd, ZooKeeper: (*Set).zookeeper, Redis: (*Set).redis,
	}[kind]
	if !ok {
		return Server{}, fmt.Errorf("there is no server of kind %q", kind)
	}
	server, err := start(s, ctx)
	if err != nil && !errors.Is(err, ErrMissing) {
		err = fmt.Errorf("start %s: %w", kind, err)
	}
	return server, err
}

// Stop ends all of them and removes their data.
func (s *Set) Stop() error {
	var err error
	for _, c := range s.companions {
		err = errors.Join(err, c.Kill())
	}
	return errors.Join(err, s.postgres.Stop())
}

// ErrMissing is matched by the error of Add where a program is not on this machine.
var ErrMissing = errors.New("not on this machine")

// program finds one on the PATH.
func program(name, debian string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", missing(name, debian)
	}
	return path, nil
}

func missing(what, debian string) error {
	return fmt.Errorf("%s is %w: install it with `apt-get install %s`", what, ErrMissing, debian)
}

// version is the first line of what a program says of itself.
func version(ctx context.Context, program, flag string) (string, error) {
	out, err := exec.CommandContext(ctx, program, flag).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, flag, err)
	}
	return firstLine(string(out)), nil
}

// beside makes the directory of a server that is to run.
func (s *Set) beside(name string) (*postgres.Companion, error) {
	c, err := s.postgres.Accompany(name)
	if err != nil {
		return nil, err
	}
	s.companions = append(s.companions, c)
	return c, nil
}

// await returns when something answers at the address.
func await(ctx context.Context, c *postgres.Companion, address string, answers func(net.Conn) bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			// A server that is only starting takes connections and may never answer on them.
			ok := conn.SetDeadline(time.Now().Add(time.Second)) == nil && answers(conn)
			_ = conn.Close()
			if ok {
				return nil
			}
		}
		select {
		case <-c.Ended():
			return fmt.Errorf("it ended at its start: %s", c.Log())
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w: %s", ctx.Err(), c.Log())
		case <-tick.C:
		}
	}
}

func loopback() (address, port string, err error) {
	n, err := postgres.FreePort()
	if err != nil {
		return "", "", err
	}
	port = strconv.Itoa(n)
	return net.JoinHostPort("127.0.0.1", port), port, nil
}
