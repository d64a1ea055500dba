package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Standby starts a second server that follows s by streaming replication, asynchronously unless
// s's settings name it: its application_name is walreceiver. It takes the binaries and the password
// of s, and of the options all that does not choose binaries or make a cluster. Each of the two has
// to be stopped.
func (s *Server) Standby(ctx context.Context, opts Options) (*Server, error) {
	if s.private == nil {
		return nil, errNotOurs
	}
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	p := &private{bin: s.bin, who: s.who, options: opts}
	copied := p.copyFrom
	if _, err := os.Stat(s.bin.path("pg_basebackup")); err != nil {
		copied = p.copyOnline
	}
	return p.raise(ctx,
		func() error { return copied(ctx, s) },
		func() (string, error) { return withPort(s.url, p.port) })
}

// copyFrom copies a running server over its socket, where the server's user needs no password, and
// leaves in the copy how to follow it.
func (p *private) copyFrom(ctx context.Context, s *Server) error {
	_, err := p.who.output(ctx, p.base, p.bin.path("pg_basebackup"), "--pgdata="+p.dataDir(), "--write-recovery-conf",
		"--wal-method=stream", "--checkpoint=fast", "--no-sync", "--no-password",
		"--host="+s.base, "--port="+strconv.Itoa(s.port), "--username=postgres")
	return err
}

func withPort(text string, port int) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", err
	}
	u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(port))
	return u.String(), nil
}

// Promote makes a standby a primary, on a new timeline, and returns when it takes writes.
func (s *Server) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var promoted bool
	if err := conn.QueryRow(ctx, "SELECT pg_promote()").Scan(&promoted); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if !promoted {
		return errors.New("promote: the server is still in recovery")
	}
	return nil
}
