package authority

import (
	"strconv"
	"testing"
	"time"
)

// The memory of refusals is bounded, and what it must hold of it are the last.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	var r refusals
	now := time.Now()
	const asked = 3 * refusalsKept
	for i := range asked {
		r.note(strconv.Itoa(i), now, Answer{Outcome: Held, Remaining: time.Hour})
	}
	if n := len(r.recent) + len(r.older); n > refusalsKept {
		t.Errorf("%d are kept", n)
	}
	for i := asked - refusalsKept/2; i < asked; i++ {
		if !r.likely(strconv.Itoa(i)) {
			t.Fatalf("%d of %d is forgotten", i, asked)
		}
	}
}

// A grant, a lease that is over by now, and an answer that says nothing of a lease end the memory.
func TestRefusalsAreForgotten(t *testing.T) {
	t.Parallel()
	var r refusals
	held := Answer{Outcome: Held, Remaining: time.Hour}
	for name, answer := range map[string]Answer{
		"granted": {Outcome: Granted, Remaining: time.Hour}, "free, with a line": {Outcome: Queued},
		"a rival is at the row": {Outcome: Held},
	} {
		r.note("r", time.Now(), held)
		if !r.likely("r") || r.likely("other") {
			t.Error("not remembered, or another is")
		}
		r.note("r", time.Now(), answer)
		if r.likely("r") {
			t.Errorf("%s: still remembered", name)
		}
	}
	r.note("r", time.Now().Add(-time.Hour), held)
	if r.likely("r") {
		t.Error("remembered for longer than the lease lasts")
	}
}
