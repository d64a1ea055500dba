package pgleasetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/internal/postgres"
	"github.com/pglease/pglease/migrations"
)

// templates are the names of template databases that this process knows to be there.
var templates struct {
	mu     sync.Mutex
	byName map[string]*template
}

// template is made once; the mutex above is not held meanwhile, so that others go on.
type template struct {
	once sync.Once
	err  error
}

// templateFor returns the name of a database with the lines applied, and makes it if need be.
func templateFor(srv *postgres.Server, lines []migrations.Line) (string, error) {
	lines = withLease(lines)
	name, err := templateName(lines)
	if err != nil {
		return "", err
	}
	templates.mu.Lock()
	if templates.byName == nil {
		templates.byName = make(map[string]*template)
	}
	t := templates.byName[name]
	if t == nil {
		t = new(template)
		templates.byName[name] = t
	}
	templates.mu.Unlock()

	t.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), databaseTime)
		defer cancel()
		t.err = makeTemplate(ctx, srv, name, lines)
	})
	return name, t.err
}

// withLease returns the lines in the order in which they apply, each once, that of leases always.
func withLease(lines []migrations.Line) []migrations.Line {
	wanted := append([]migrations.Line{migrations.Lease}, lines...)
	var ordered []migrations.Line
	for _, line := range []migrations.Line{migrations.Lease, migrations.Jobs, migrations.Fence, migrations.Report} {
		if slices.Contains(wanted, line) {
			ordered = append(ordered, line)
		}
	}
	for _, line := range wanted { // a line that this list does not know is for Up to refuse
		if !slices.Contains(ordered, line) {
			ordered = append(ordered, line)
		}
	}
	return ordered
}

// templateName holds a hash of the SQL, so that a template of other migrations is never taken.
func templateName(lines []migrations.Line) (string, error) {
	sum := sha256.New()
	for _, line := range lines {
		all, err := migrations.All(line, migrations.DefaultSchema)
		if err != nil {
			return "", err
		}
		for _, m := range all {
			fmt.Fprintf(sum, "%s %d %s %d %s\n", line, m.Version, m.Name, len(m.Up), m.Up)
		}
	}
	return fmt.Sprintf("pglease_template_%x", sum.Sum(nil)[:10]), nil
}

// makeTemplate makes the database under another name and renames it when it is complete, so what
// has the name is whole, whoever was killed meanwhile. The advisory lock makes one process work
// and the others, which share the server, wait.
func makeTemplate(ctx context.Context, srv *postgres.Server, name string, lines []migrations.Line) error {
	return administer(ctx, srv, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", name); err != nil {
			return err
		}
		var there bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there)
		if err != nil || there {
			return err
		}
		building := strings.Replace(name, "template", "building", 1)
		if err := run(ctx, conn, "DROP DATABASE IF EXISTS "+building+" WITH (FORCE)", "CREATE DATABASE "+building); err != nil {
			return err
		}
		if err := migrate(ctx, srv, building, lines); err != nil {
			return err
		}
		// Nobody may connect: a database with sessions cannot be cloned.
		return run(ctx, conn, "ALTER DATABASE "+building+" ALLOW_CONNECTIONS false", "ALTER DATABASE "+building+" RENAME TO "+name)
	})
}

func migrate(ctx context.Context, srv *postgres.Server, database string, lines []migrations.Line) error {
	url, err := withDatabase(srv.URL(), database)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, line := range lines {
		if err := migrations.Up(ctx, pool, line); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		// CREATE DATABASE and its like are refused in a transaction, so each goes alone.
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
