package fencetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// Run holds a resource to the rule, each check as a parallel subtest on a resource of its own.
// newResource returns one that has seen no token yet; it may use t's Cleanup.
func Run(t *testing.T, newResource func(t *testing.T) Resource) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newResource(t)
			if err := r.complete(); err != nil {
				t.Fatal(err)
			}
			if c.needs != nil && !c.needs(r) {
				t.Skip("the resource does not offer what this check needs")
			}
			s := newSuite(r)
			if err := c.run(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

// A check is one part of the suite. Its error says what is wrong with the resource.
type check struct {
	name  string
	needs func(Resource) bool // nil: nothing beyond Write and History
	run   func(context.Context, *suite) error
}

var checks = []check{
	{"first touch", nil, firstTouch},
	{"lower refused", nil, lowerRefused},
	{"higher establishes", nil, higherEstablishes},
	{"equal validated", nil, equalValidated},
	{"numbers", func(r Resource) bool { return r.Grant == nil }, numbers},
	{"shared fence", func(r Resource) bool { return !r.NoLeaseID }, sharedFence},
	{"establish", func(r Resource) bool { return r.Establish != nil }, establish},
	{"queue", nil, queue},
	{"repeated", nil, repeated},
	{"crash", func(r Resource) bool { return r.Crash != nil }, crash},
	{"writers", nil, writers},
}

func (r Resource) complete() error {
	switch {
	case r.Write == nil || r.History == nil:
		return errors.New("fencetest: a resource needs Write and History")
	case r.KnowsGrants && r.Grant == nil:
		return errors.New("fencetest: who knows of grants must make them: KnowsGrants needs Grant")
	}
	return nil
}

// timeVariable is how long the writers go on.
const timeVariable = "PGLEASE_FENCETEST_TIME"

func writingTime() (time.Duration, error) {
	text := os.Getenv(timeVariable)
	if text == "" {
		if testing.Short() {
			return 200 * time.Millisecond, nil
		}
		return time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("fencetest: %s is %q, want a duration as 10s", timeVariable, text)
	}
	return d, nil
}
