package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Options say what is measured.
type Options struct {
	Works  []string      // empty: all
	For    time.Duration // how long each work is done in a round
	Rounds int
	Notice io.Writer
}

// limit is the work that everything is compared with; it is always done.
const limit = "limit"

// works are what can be done, in the order in which it is printed.
var works = []struct {
	name  string
	title string
	note  string
	loads func(*stage, context.Context) ([]load, error)
}{
	{limit, "The limit: bare statements of one row", "", (*stage).bare},
	{"pairs", "Acquire and release", "", (*stage).pairs},
	{"refused", "TryAcquire of what another holds", "", (*stage).refused},
	{"renew", "Renewals", "", (*stage).renewals},
	{"handover", "Hand-over from one client to another", handOverNote, (*stage).handOver},
	{"guard", "A guarded transaction", "", (*stage).guard},
	{"publish", "Publish", "", (*stage).publish},
	{"jobs", "Jobs, one at a time", "", (*stage).jobs},
	{"parts", "Parts of the statements", partsNote, (*stage).parts},
	{"wakeups", "Wake-ups", wakeupsNote, (*stage).wakeups},
}

// Works returns the names of what can be measured, in the order in which it is printed.
func Works() []string {
	var names []string
	for _, w := range works {
		names = append(names, w.name)
	}
	return names
}

// Check returns all problems together.
func (o Options) Check() error {
	var errs []error
	for _, work := range o.Works {
		if !slices.Contains(Works(), work) {
			errs = append(errs, fmt.Errorf("there is no work %q, only %s", work, strings.Join(Works(), ", ")))
		}
	}
	if o.Rounds < 1 || o.Rounds > 1000 {
		errs = append(errs, fmt.Errorf("rounds %d is not between 1 and 1000", o.Rounds))
	}
	if o.For < 10*time.Millisecond || o.For > time.Minute {
		errs = append(errs, fmt.Errorf("for %v is not between 10ms and 1m", o.For))
	}
	return errors.Join(errs...)
}

func (o Options) wants(work string) bool {
	return work == limit || len(o.Works) == 0 || slices.Contains(o.Works, work)
}
