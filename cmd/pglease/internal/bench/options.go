package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Defaults of Options.
const (
	DefaultClients = 8
	DefaultFor     = time.Second
	DefaultRounds  = 7
	DefaultLeases  = 10_000
)

// Options say what to measure. The zero value of a number means its default.
type Options struct {
	Work       string        // one of Works
	URL        string        // of the database; empty: a private, durable Postgres is started
	Clients    int           // who work at the same time; renew has one
	For        time.Duration // how long each load runs in a round
	Rounds     int
	Waiters    int       // of handoff: how many stand in line; 0: the clients take turns
	Processes  int       // of handoff: over how many processes, as it were, those are spread; default: a client each
	DirectWake bool      // of handoff: its clients are woken one by one, see pglease.Config
	Leases     int       // of renew
	NoHistory  bool      // keep no history of tenures
	Notice     io.Writer // gets a line on where the run takes place; nil: nobody does
}

// ErrOptions is matched by the error of Run where the options cannot be right: nothing was done.
var ErrOptions = errors.New("invalid options")

func (o Options) filled() (Options, error) {
	if err := o.check(); err != nil {
		return o, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	o.For = cmp.Or(o.For, DefaultFor)
	o.Rounds = cmp.Or(o.Rounds, DefaultRounds)
	if o.Work == renew.Name {
		o.Clients = 1
		o.Leases = cmp.Or(o.Leases, DefaultLeases)
	}
	o.Clients = cmp.Or(o.Clients, DefaultClients)
	if o.Work == handoff.Name {
		o.Processes = min(cmp.Or(o.Processes, o.Clients), o.handedBetween())
	}
	if o.Notice == nil {
		o.Notice = io.Discard
	}
	return o, nil
}

// handedBetween is among how many the resource of handoff goes: the holder of a line has a place of its own.
func (o Options) handedBetween() int {
	if o.Waiters > 0 {
		return o.Waiters + 1
	}
	return o.Clients
}

// check returns all problems together.
func (o Options) check() error {
	known := slices.ContainsFunc(Works(), func(w Work) bool { return w.Name == o.Work })
	return errors.Join(
		checkURL(o.URL),
		refuse(!known, "there is no work %q, only %s", o.Work, names()),
		outside("clients", o.Clients, 1_000),
		outside("rounds", o.Rounds, 1_000),
		outside("waiters", o.Waiters, 10_000),
		outside("leases", o.Leases, 100_000),
		refuse(o.For < 0 || o.For > time.Hour, "for %v is not between 0 and 1h", o.For),
		outside("processes", o.Processes, 1_000),
		refuse(o.Waiters > 0 && o.Work != handoff.Name, "waiters are for %s", handoff.Name),
		refuse(o.Processes > 0 && o.Work != handoff.Name, "processes are for %s", handoff.Name),
		refuse(o.DirectWake && o.Work != handoff.Name, "direct wake is for %s", handoff.Name),
		refuse(o.Clients > 0 && o.Waiters > 0, "name clients or waiters: either takes part, not both"),
		refuse(o.Leases > 0 && o.Work != renew.Name, "leases are for %s", renew.Name),
		refuse(o.Clients > 1 && o.Work == renew.Name, "%s is the work of one client", renew.Name),
	)
}

func checkURL(url string) error {
	_, err := pgxpool.ParseConfig(url)
	return err
}

func outside(what string, n, most int) error {
	return refuse(n < 0 || n > most, "%s %d is not between 0 and %d", what, n, most)
}

func refuse(problem bool, format string, args ...any) error {
	if !problem {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func names() string {
	var list []string
	for _, w := range Works() {
		list = append(list, w.Name)
	}
	return strings.Join(list, ", ")
}
