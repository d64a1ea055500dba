package jobs

import (
	"testing"
	"time"
)

// A pooler is asked less and less often, a server that was merely gone as often as ever.
func TestAListenerPausesLongerWhereNothingIsDelivered(t *testing.T) {
	t.Parallel()
	const gone, silent = false, true
	deaf := time.Duration(0)
	for i, try := range []struct {
		noPush bool
		want   time.Duration
	}{
		{gone, 5 * time.Second},
		{gone, 5 * time.Second},
		{silent, 5 * time.Second},
		{silent, 10 * time.Second},
		{silent, 20 * time.Second},
		{silent, 40 * time.Second},
		{silent, time.Minute},
		{silent, time.Minute},
		{gone, 5 * time.Second},
		{silent, 5 * time.Second},
		{silent, 10 * time.Second},
	} {
		var delay time.Duration
		if delay, deaf = pauseAfter(try.noPush, deaf); delay != try.want {
			t.Errorf("pause %d is %v, want %v", i, delay, try.want)
		}
	}
}
