//go:build linux

package torture

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
)

// home is the database that Start sets up. Lend copies it.
const home = "postgres"

var lent atomic.Int64

// lend makes databases of their own on servers that others use too. What befalls a server would befall
// them all.
func (s *Servers) lend(ctx context.Context) (*Servers, error) {
	l := &Servers{
		database: fmt.Sprintf("torture_%d", lent.Add(1)), lent: true, clockLib: s.clockLib, primary: s.primary, resources: s.resources,
	}
	for _, server := range []*postgres.Server{s.primary, s.resources} {
		err := onServer(ctx, in(server.URL(), "template1"), func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "CREATE DATABASE "+l.database+" TEMPLATE "+home)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	l.authority.Set(address(s.primary))
	l.resource.Set(address(s.resources))
	return l, nil
}

func parsed(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err) // it comes from package postgres
	}
	return u
}

// in is the URL with another database.
func in(text, database string) string {
	u := parsed(text)
	u.Path = "/" + database
	return u.String()
}

func address(server *postgres.Server) string { return parsed(server.URL()).Host }

// through is the URL with the address of a link.
func through(text, address string) string {
	u := parsed(text)
	u.Host = address
	return u.String()
}

// authorityURL is the primary's, past the proxies.
func (s *Servers) authorityURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return in(s.primary.URL(), s.database)
}

// resourceURL is that of the protected resources, past the proxies.
func (s *Servers) resourceURL() string { return in(s.resources.URL(), s.database) }
