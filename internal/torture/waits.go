//go:build linux

package torture

import (
	"errors"
	"regexp"
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

var (
	timer    = regexp.MustCompile(`set_config\('client_connection_check_interval', '[^']*'`)
	errTimer = errors.New("sessions wait in the server with a timer, and its clock can be set")
)

// quiet takes from a session that is to wait in the server the timer by which it sees that its process is gone. The
// library that sets the clock reads a file at each look at it and allocates memory for that, also where Postgres looks in
// the handler of the timer's signal. Where the signal interrupts an allocation, that ends in a server that crashes
// ("free(): corrupted unsorted chunks") or hangs, which no server does whose clock is its own. A wait takes a sixth of
// the TTL here, and then the session sees it all the same.
func (l *leg) quiet(sql string) string {
	if l.servers.clockLib == "" || !timer.MatchString(sql) {
		return sql
	}
	l.quieted.Add(1)
	return timer.ReplaceAllString(sql, "set_config('client_connection_check_interval', '0'")
}
