package profile

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

const work = "SELECT count(*) FROM generate_series(1, 200000)"

// What other processes of the server do meanwhile does not count, and neither does time that is only waited for.
func TestOnlyTheStatementsOwnProcessCounts(t *testing.T) {
	t.Parallel()
	set, pg, err := servers.Start(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &stage{address: pg.Address}
	t.Cleanup(s.close)
	if s.meter.control, err = pgx.Connect(t.Context(), pg.Address); err != nil {
		t.Fatal(err)
	}
	s.atEnd(func() { _ = s.meter.control.Close(context.WithoutCancel(t.Context())) })
	s.meter.round, s.meter.rounds, s.meter.ops = map[string][]figure{}, map[string][]figure{}, map[string]int{}
	mine, other := newSession(t, s), newSession(t, s)
	for row, op := range map[string]func() error{
		"works":  func() error { return mine.discard(t.Context(), work) },
		"others": func() error { return other.discard(t.Context(), work) },
		"waits":  func() error { return mine.discard(t.Context(), "SELECT 1 FROM pg_sleep(0.1)") },
	} {
		if err := s.meter.times(t.Context(), row, mine.pid, 3, func(int) error { return op() }); err != nil {
			t.Fatal(err)
		}
	}
	s.meter.endRound()
	works := s.meter.rounds["works"][0].server
	for _, row := range []string{"others", "waits"} {
		if got := s.meter.rounds[row][0].server; got > works/4 {
			t.Errorf("%s: %v µs, and %v µs where the process works itself", row, got, works)
		}
	}
	if s.meter.ops["works"] != 3 {
		t.Errorf("%d operations, want 3", s.meter.ops["works"])
	}
}

func newSession(t *testing.T, s *stage) *session {
	t.Helper()
	session, err := s.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if session.pid == 0 || len(session.alive()) != 1 || session.alive()[0] != session.pid {
		t.Fatalf("the process %d is not the one of %d", session.pid, session.alive())
	}
	return session
}

func TestAProcessThatIsGoneIsAnError(t *testing.T) {
	t.Parallel()
	const nobody = 1 << 30
	if err := awaitSleep(t.Context(), nobody); err == nil {
		t.Error("it sleeps")
	}
	if _, err := spentBy(nobody); err == nil {
		t.Error("it has had some time")
	}
}

// This process's own time grows with what it does.
func TestTheClientsTimeGrows(t *testing.T) {
	t.Parallel()
	before, err := spentHere()
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
		continue
	}
	after, err := spentHere()
	if err != nil || after <= before {
		t.Errorf("from %v to %v, %v", before, after, err)
	}
}
