//go:build linux

package torture

import (
	"testing"

	"github.com/pglease/pglease/internal/postgres"
)

// TestALackOfAStandbyIsBorne: while its primary is down none can be made, which ends no run. When it is up
// again, one is made. Where none can be made for long, the harness says that it does not work.
func TestALackOfAStandbyIsBorne(t *testing.T) {
	t.Parallel()
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
