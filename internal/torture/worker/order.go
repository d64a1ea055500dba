package worker

import (
	"errors"
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// An Order says what a process is to do.
type Order struct {
	Name      string
	Seed      uint64
	Authority string // URL of the database with the leases
	Resource  string // URL of the database with the reports and watermarks
	Files     string // the directory with one directory a resource, named by its number
	History   string // the file to write
	Resources []string
	TTL       time.Duration
	Sessions  int
	Direct    bool          // its session is woken alone, see pglease.Config.DirectWake
	Careless  float64       // the share of leases whose loss is not minded
	Hold      time.Duration // the mean length of a unit of work
	Stores    []string      // the kinds of resources to publish to; none for all
	Patience  time.Duration // how long to try to reach the authority at the start; default 45 s
	Planted   string        // a bug of the worker's own, see the constants
}

// Bugs that a worker may have, to show that they are found.
const (
	PlantBareFiles = "bare_files"    // files are written without the store that compares fences
	PlantForgery   = "forged_tokens" // tokens are made up
)

// A Command is told to a process by a line of JSON on its standard input.
type Command struct {
	Stop  bool          `json:",omitempty"` // end all sessions and leave
	Drain time.Duration `json:",omitempty"` // take every connection of the pools for so long
}

// A reason is an error by which a call is refused, and what the history calls it.
type reason struct {
	err error
	why string
}

// settle writes the outcome of a call down. An error that is none of the reasons leaves it open.
func settle(c *history.Call, err error, reasons ...reason) {
	if err == nil {
		c.Outcome = history.OK
		return
	}
	c.Outcome, c.Err = history.Unknown, err.Error()
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			c.Outcome, c.Why = history.Refused, r.why
			return
		}
	}
}
