package pglease_test

import (
	"context"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease"
)

// TestASlowServerIsNoPooler: a test ring that is late makes the client poll, and try again soon. Only one that
// never comes is waited for longer and longer.
func TestASlowServerIsNoPooler(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		f.muffled = 2
		acquire(t, c, "r")
		ctx, stop := context.WithCancel(t.Context())
		waiting := waitFor(ctx, c, "r")
		for _, after := range []struct {
			time  time.Duration
			tries int
		}{{6 * time.Second, 1}, {2 * time.Second, 2}, {9 * time.Second, 2}, {3 * time.Second, 3}, {20 * time.Minute, 3}} {
			<-time.After(after.time)
			if tries := f.count("listen"); tries != after.tries {
				t.Errorf("%d tries to listen, want %d", tries, after.tries)
			}
		}
		stop()
		<-waiting
	})
}
