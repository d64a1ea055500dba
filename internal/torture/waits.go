//go:build linux

package torture

import (
	"time"

	"github.com/pglease/pglease/internal/torture/history"
)

// Columns of the answer to a wait in the server. Its last row has no resource, and says how the wait ended.
const (
	waitResource = 0
	waitRoused   = 4
	waitSlept    = 5
)

// waited writes down how the waits of a process's session in the server end. Only the server knows: the process is
// told of a grant in either case.
func (l *leg) waited(process string) func(values [][]byte) {
	return func(values [][]byte) {
		if len(values) <= waitSlept || len(values[waitResource]) > 0 {
			return
		}
		ended := history.Found
		switch {
		case isTrue(values[waitRoused]):
			ended = history.Roused
		case isTrue(values[waitSlept]):
			ended = history.Slept
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waits = append(l.waits, history.Wait{Process: process, Ended: ended, At: time.Now()})
	}
}

// isTrue reads a boolean in either format.
func isTrue(value []byte) bool {
	return len(value) == 1 && (value[0] == 1 || value[0] == 't')
}
