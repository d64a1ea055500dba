package fencetest_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(*testing.T) fencetest.Resource { return new(register).resource() })
}

// by makes a rule of a comparison.
func by(stale func(r *register, t fence.Token) bool) func(*register, fence.Token) error {
	return func(r *register, t fence.Token) error {
		if r.touched && stale(r, t) {
			return r.stale(t)
		}
		return nil
	}
}

// Each way to get fencing wrong is noticed, and by the checks that are about it.
func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		flaws    flaws
		caughtBy []string // these at least
	}{
		"nothing is checked": {
			flaws{judge: by(func(*register, fence.Token) bool { return false })},
			[]string{"first touch", "lower refused", "higher establishes", "numbers", "shared fence", "establish", "queue", "repeated", "crash", "writers"},
		},
		"fence <= watermark is stale": {
			flaws{judge: by(func(r *register, t fence.Token) bool { return t.Fence() <= r.fence })},
			[]string{"equal validated", "lower refused", "queue", "establish"},
		},
		"the lease id is not compared": {
			flaws{judge: by(func(r *register, t fence.Token) bool { return t.Fence() < r.fence })},
			[]string{"shared fence"},
		},
		"equality only": {
			flaws{judge: by(func(r *register, t fence.Token) bool { return t.Fence() != r.fence })},
			[]string{"first touch", "higher establishes", "numbers", "establish", "queue", "writers"},
		},
		"compared as text": {
			flaws{judge: by(func(r *register, t fence.Token) bool {
				return strconv.FormatInt(t.Fence(), 10) < strconv.FormatInt(r.fence, 10)
			})},
			[]string{"numbers"},
		},
		"compared as 32 bits": {
			flaws{judge: by(func(r *register, t fence.Token) bool { return int32(t.Fence()) < int32(r.fence) })}, //nolint:gosec // the mistake
			[]string{"numbers"},
		},
		"compared as float32": {
			flaws{judge: by(func(r *register, t fence.Token) bool { return float32(t.Fence()) < float32(r.fence) })},
			[]string{"numbers"},
		},
		"the watermark is forgotten": {
			flaws{forget: func(r *register) { r.touched = false }},
			[]string{"first touch", "lower refused", "queue", "writers"},
		},
		"refused with another error": {
			flaws{judge: func(r *register, t fence.Token) error {
				if right(r, t) != nil {
					return errors.New("no")
				}
				return nil
			}},
			[]string{"first touch", "lower refused", "writers"},
		},
		"check, then act":         {flaws{unlocked: true}, []string{"writers"}},
		"establish does nothing":  {flaws{silent: true}, []string{"establish"}},
		"repeated commands count": {flaws{again: true}, []string{"repeated"}},
		"the order is not kept":   {flaws{anyOrder: true}, []string{"equal validated", "queue"}},
		"a crash leaves a part":   {flaws{torn: true}, []string{"crash"}},
		"a crash is made up late": {flaws{late: true}, []string{"crash"}},
		"a crash forgets":         {flaws{reset: true}, []string{"crash"}},
		"a crash marks as done":   {flaws{marked: true}, []string{"crash"}},
		"the history is made up":  {flaws{misnamed: true}, []string{"writers"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := fencetest.Check(t.Context(), func() fencetest.Resource {
				return (&register{flaws: m.flaws}).resource()
			})
			for check, err := range said {
				if err == nil && slices.Contains(m.caughtBy, check) {
					t.Errorf("not noticed by %q", check)
				}
			}
		})
	}
}

// What is admitted is not held against the resource, and what is missing leaves checks out.
func TestPromisesDecideWhatIsChecked(t *testing.T) {
	t.Parallel()
	loose := func() fencetest.Resource {
		r := register{flaws: flaws{again: true, anyOrder: true}}
		r.judge = by(func(r *register, t fence.Token) bool { return t.Fence() < r.fence })
		plain := r.resource()
		plain.Sequences, plain.Repeats, plain.NoLeaseID = false, false, true
		plain.Establish, plain.Crash = nil, nil
		return plain
	}
	said := fencetest.Check(t.Context(), loose)
	for check, err := range said {
		if err != nil {
			t.Errorf("%s: %v", check, err)
		}
	}
	for _, check := range []string{"shared fence", "establish", "crash"} {
		if _, ran := said[check]; ran {
			t.Errorf("%q ran", check)
		}
	}
}

func TestIncompleteResource(t *testing.T) {
	t.Parallel()
	whole := new(register).resource()
	noWrite, noHistory, noGrant := whole, whole, whole
	noWrite.Write, noHistory.History, noGrant.KnowsGrants = nil, nil, true
	for i, r := range []fencetest.Resource{noWrite, noHistory, noGrant} {
		for check, err := range fencetest.Check(t.Context(), func() fencetest.Resource { return r }) {
			if err == nil {
				t.Errorf("resource %d: %q ran", i, check)
			}
		}
	}
}

func TestCheckHistory(t *testing.T) {
	t.Parallel()
	a, b := fence.LeaseID{1}, fence.LeaseID{2}
	entry := func(number int64, lease fence.LeaseID) fencetest.Entry {
		return fencetest.Entry{Command: fmt.Sprint("c", number), Fence: number, LeaseID: lease}
	}
	for name, c := range map[string]struct {
		entries []fencetest.Entry
		ok      bool
	}{
		"empty":         {nil, true},
		"rising":        {[]fencetest.Entry{entry(9, a), entry(9, a), entry(10, b)}, true},
		"falling":       {[]fencetest.Entry{entry(10, a), entry(9, b)}, false},
		"fell and rose": {[]fencetest.Entry{entry(10, a), entry(9, b), entry(11, a)}, false},
		"shared":        {[]fencetest.Entry{entry(9, a), entry(9, b)}, false},
	} {
		if err := fencetest.CheckHistory(c.entries); (err == nil) != c.ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
