// Package pgbouncer starts a pgbouncer in front of a Postgres that package postgres started, for
// tests.
package pgbouncer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/pglease/pglease/internal/postgres"
)

// ErrNotFound is returned where there is no pgbouncer on this machine.
var ErrNotFound = errors.New("no pgbouncer found; on Debian: apt-get install pgbouncer")

// Modes of pooling.
const (
	Session     = "session"
	Transaction = "transaction"
)

// startTime bounds the start where the context has no earlier deadline.
const startTime = 10 * time.Second

// Pooler is a pgbouncer that was started.
type Pooler struct {
	url       string
	companion *postgres.Companion
}

// Start runs a pgbouncer in front of all databases of the server. The settings are those of its
// section [pgbouncer], beside the address and how to log in, which is as on the server itself.
func Start(ctx context.Context, server *postgres.Server, mode string, settings ...string) (*Pooler, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	upstream, err := url.Parse(server.URL())
	if err != nil {
		return nil, err
	}
	c, err := server.Accompany("pgbouncer")
	if err != nil {
		return nil, err
	}
	port, err := postgres.FreePort()
	if err != nil {
		return nil, err
	}
	password, _ := upstream.User.Password()
	users, err := c.WriteFile("users", fmt.Sprintf("%q %q\n", upstream.User.Username(), password))
	if err != nil {
		return nil, err
	}
	lines := append([]string{
		"[databases]",
		"* = host=" + upstream.Hostname() + " port=" + upstream.Port(),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"auth_type = scram-sha-256",
		"auth_file = " + users,
		"pool_mode = " + mode,
	}, settings...)
	config, err := c.WriteFile("pgbouncer.ini", strings.Join(lines, "\n")+"\n")
	if err != nil {
		return nil, err
	}
	if err := c.Run(ctx, program, config); err != nil {
		return nil, err
	}
	upstream.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p := &Pooler{url: upstream.String(), companion: c}
	if err := p.await(ctx, upstream.Host); err != nil {
		return nil, errors.Join(fmt.Errorf("start pgbouncer: %w\n%s", err, c.Log()), p.Stop())
	}
	return p, nil
}

// find looks on PATH and where Debian puts it, which only root's PATH has.
func find() (string, error) {
	if program, err := exec.LookPath("pgbouncer"); err == nil {
		return program, nil
	}
	const usual = "/usr/sbin/pgbouncer"
	if _, err := os.Stat(usual); err != nil {
		return "", ErrNotFound
	}
	return usual, nil
}

// await returns when the pooler takes connections.
func (p *Pooler) await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.companion.Ended():
			return errors.New("it ended at its start")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// URL is the server's, through the pooler.
func (p *Pooler) URL() string { return p.url }

// Log is what the pooler has printed.
func (p *Pooler) Log() string { return p.companion.Log() }

// Stop ends the pooler.
func (p *Pooler) Stop() error { return p.companion.Kill() }
