//go:build linux

package torture

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/postgres"
)

// primaryAlone is an authority without a standby.
func primaryAlone(t *testing.T) *Servers {
	t.Helper()
	primary, err := postgres.Start(t.Context(), postgres.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &Servers{primary: primary}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestALossBeginsBeforeTheCopy: to be copied the server is killed, which takes what it had not written to disk. So
// what a restore lost begins while sessions still lived, and not with the copy that took its time.
func TestALossBeginsBeforeTheCopy(t *testing.T) {
	t.Parallel()
	s := primaryAlone(t)
	conn, err := pgx.Connect(t.Context(), s.primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan time.Time, 1)
	go func() {
		_, _ = conn.WaitForNotification(context.WithoutCancel(t.Context())) // there is none: it ends with the session
		ended <- time.Now()
	}()
	if err := s.restore(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	losses, _ := s.record()
	if len(losses) != 1 {
		t.Fatalf("a restore lost %v", losses)
	}
	if killed := <-ended; losses[0].From.After(killed) {
		t.Errorf("the server was killed by %v, and the loss begins at %v", killed, losses[0].From)
	}
}

// TestALackOfAStandbyIsBorne: while its primary is down none can be made, which ends no run. When it is up
// again, one is made. Where none can be made for long, the harness says that it does not work.
func TestALackOfAStandbyIsBorne(t *testing.T) {
	t.Parallel()
	s := primaryAlone(t)
	primary := s.primary
	down := func(times int) error {
		if err := primary.Kill(); err != nil {
			t.Fatal(err)
		}
		for range times {
			done, err := s.failover(t.Context(), 0)
			if done {
				t.Error("a failover without a standby")
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := down(copies - 1); err != nil {
		t.Error(err)
	}
	if err := primary.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.follow(t.Context()); err != nil || s.standby == nil {
		t.Errorf("standby %v: %v", s.standby, err)
	}
	if err := s.standby.Stop(); err != nil {
		t.Error(err)
	}
	s.standby = nil
	if err := down(copies); err == nil {
		t.Error("there was never a standby, and nothing was said")
	}
}

// TestAWaitHasNoTimerWhereTheClockIsSet: and has it where it is not.
func TestAWaitHasNoTimerWhereTheClockIsSet(t *testing.T) {
	t.Parallel()
	const as = "SELECT set_config('client_connection_check_interval', '100ms', false), 1"
	for lib, want := range map[string]string{"": as, "libfaketime.so.1": "SELECT set_config('client_connection_check_interval', '0', false), 1"} {
		l := &leg{servers: &Servers{clockLib: lib}}
		if got := l.quiet(as); got != want || (l.quieted.Load() > 0) != (lib != "") {
			t.Errorf("library %q: %s, counted %d", lib, got, l.quieted.Load())
		}
		if got := l.quiet("SELECT 1"); got != "SELECT 1" {
			t.Errorf("library %q: %s", lib, got)
		}
	}
}
