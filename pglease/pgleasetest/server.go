package pgleasetest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
)

// urlVariable names the environment variable with the URL of a server to use.
const urlVariable = "PGLEASE_TEST_DATABASE_URL"

// startTime bounds the start of a server, a download included.
const startTime = 5 * time.Minute

// shared is the server of this process. It is started by the first test that asks, and a failure
// is every later test's too, without trying again.
var shared struct {
	mu     sync.Mutex
	server *postgres.Server
	err    error
}

func server() (*postgres.Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		// Not a test's context: the server is for all of them.
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		shared.server, shared.err = postgres.FindOrStart(ctx, postgres.Options{URL: os.Getenv(urlVariable)})
	}
	return shared.server, shared.err
}

// stopServer stops what server started. Later tests would fail, so this is for the end.
func stopServer() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return nil
	}
	return shared.server.Stop()
}

// withDatabase returns the connection string with another database in it, in the form, URL or
// key=value, that it has.
func withDatabase(connString, database string) (string, error) {
	if !strings.HasPrefix(connString, "postgres://") && !strings.HasPrefix(connString, "postgresql://") {
		return connString + " dbname=" + database, nil // the last one wins
	}
	u, err := url.Parse(connString)
	if err != nil {
		return "", fmt.Errorf("%s: %w", urlVariable, err)
	}
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.Path, u.RawPath, u.RawQuery = "/"+database, "", query.Encode()
	return u.String(), nil
}

// administer runs fn on a connection of its own to the database that the server's URL names.
func administer(ctx context.Context, srv *postgres.Server, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, srv.URL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return fn(conn)
}
