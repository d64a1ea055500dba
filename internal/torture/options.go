//go:build linux

package torture

import (
	"context"
	"io"
	"os/exec"
	"time"

	"github.com/pglease/pglease/internal/torture/mutant"
)

// Options say what to run. Zero fields mean their defaults.
type Options struct {
	For  time.Duration // how long, all legs together; default 10 s
	Leg  time.Duration // how long one leg is, after which it is checked; default 1 minute
	Seed uint64        // of all that is drawn. The same seed draws the same, in an order that time decides

	Workers   int // processes; default 8
	Sessions  int // of each; default 5
	Resources int // of a leg; default 20

	TTL      time.Duration // default 1 s
	Hold     time.Duration // the mean length of a unit of work; default 10 ms
	Careless float64       // the share of leases whose loss is not minded; default a quarter

	Faults  time.Duration // the mean time between faults of processes and network; default 150 ms
	Crashes time.Duration // the mean time between faults of servers; default 4 s
	Only    []string      // the kinds of faults to make; default all

	// Worker returns the command of a worker process, whose input is to reach worker.Main.
	Worker func() *exec.Cmd

	// On are servers to make databases on. Nil starts some for this run alone, and so does a run with
	// faults of servers.
	On *Servers

	// Planted is a bug to run with. The zero Mutant is none.
	Planted mutant.Mutant

	Dir string    // where the histories go; a directory that exists
	Log io.Writer // progress for people; nil for none
}

func (o Options) filled() Options {
	o.For = or(o.For, 10*time.Second)
	o.Leg = min(or(o.Leg, time.Minute), o.For)
	o.Workers = or(o.Workers, 8)
	o.Sessions = or(o.Sessions, 5)
	o.Resources = or(or(o.Planted.Resources, o.Resources), 20)
	o.TTL = or(or(o.Planted.TTL, o.TTL), time.Second)
	o.Hold = or(o.Hold, 10*time.Millisecond)
	o.Careless = or(o.Careless, 0.25)
	o.Faults = or(o.Faults, 150*time.Millisecond)
	o.Crashes = or(o.Crashes, 4*time.Second)
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o
}

func (o Options) servers(ctx context.Context) (*Servers, error) {
	if o.On == nil || len(drawable(crashes, o.Only)) > 0 {
		return Start(ctx)
	}
	return o.On.lend(ctx)
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
