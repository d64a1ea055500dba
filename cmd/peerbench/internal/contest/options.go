package contest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
)

// Works that can be asked for.
const (
	Pairs    = "pairs"
	HandOver = "handover"
	Renew    = "renew"
	Takeover = "takeover"
	Jobs     = "jobs"
)

// Works returns all of them, in the order in which they are run.
func Works() []string { return []string{Pairs, HandOver, Renew, Jobs, Takeover} }

// Options say what is compared.
type Options struct {
	Peers      []string      // names; empty: all
	Works      []string      // empty: all
	Clients    []int         // of pairs
	Contenders []int         // of hand-overs
	Leases     int           // of renewals
	For        time.Duration // how long each load runs in a round
	Rounds     int
	TTL        time.Duration // of takeovers
	Notice     io.Writer     // gets a line on each step and each peer that is missing
}

// Check returns all problems together.
func (o Options) Check() error {
	var errs []error
	for _, name := range o.Peers {
		if _, ok := peers.ByName(name); !ok {
			errs = append(errs, fmt.Errorf("there is no peer %q, only %s", name, peerNames()))
		}
	}
	for _, work := range o.Works {
		if !slices.Contains(Works(), work) {
			errs = append(errs, fmt.Errorf("there is no work %q, only %s", work, strings.Join(Works(), ", ")))
		}
	}
	for _, n := range slices.Concat(o.Clients, o.Contenders) {
		errs = append(errs, outside("clients", n, 1, 64))
	}
	errs = append(errs, outside("leases", o.Leases, 1, 10_000), outside("rounds", o.Rounds, 1, 1000))
	if o.For < 10*time.Millisecond || o.For > time.Minute {
		errs = append(errs, fmt.Errorf("for %v is not between 10ms and 1m", o.For))
	}
	if o.TTL < 2*time.Second || o.TTL > time.Minute || o.TTL%time.Second != 0 {
		errs = append(errs, fmt.Errorf("ttl %v is not whole seconds between 2s and 1m: etcd knows no other", o.TTL))
	}
	return errors.Join(errs...)
}

func outside(what string, n, least, most int) error {
	if n >= least && n <= most {
		return nil
	}
	return fmt.Errorf("%s %d is not between %d and %d", what, n, least, most)
}

func peerNames() string {
	var names []string
	for _, p := range peers.All() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

func (o Options) wants(work string) bool { return len(o.Works) == 0 || slices.Contains(o.Works, work) }

// wanted returns the peers that were asked for.
func (o Options) wanted() []peers.Peer {
	return slices.DeleteFunc(peers.All(), func(p peers.Peer) bool {
		return len(o.Peers) > 0 && !slices.Contains(o.Peers, p.Name)
	})
}
