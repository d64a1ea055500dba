package pgleasetest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// leakTime is how long goroutines that are about to end may take.
const leakTime = 3 * time.Second

// modulePath starts the names of all functions of this module.
const modulePath = "github.com/pglease/pglease/"

// Main is for TestMain. It runs the tests, stops the server that was started for them and exits:
// with 1 also when a goroutine of pglease is left after all tests have passed, as of a client that
// was not closed. Its stack is printed.
func Main(m *testing.M) {
	code := m.Run()
	if err := stopServer(); err != nil {
		fmt.Fprintln(os.Stderr, "pgleasetest:", err)
		code = max(code, 1)
	}
	// After a failure the leak is a consequence, and its stacks would hide the cause.
	if code == 0 {
		if left := leaked(leakTime); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "pgleasetest: %d goroutines of pglease are left:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// leaked returns the stacks of goroutines that run code of this module or were started by it. It
// asks again until there are none or the time is over.
func leaked(patience time.Duration) []string {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		left := slices.DeleteFunc(otherStacks(), func(stack string) bool {
			return !strings.Contains(stack, "\n"+modulePath) && !strings.Contains(stack, "created by "+modulePath)
		})
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		<-time.After(pause)
	}
}

// otherStacks returns the stack of each goroutine but this one.
func otherStacks() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			return strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")[1:]
		}
		buf = make([]byte, 2*len(buf))
	}
}
