package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What went wrong in systems like this one, and is tried on ours. The name of each test of a case
// ends in its number, as in TestRenewalAfterTakeover_I1, or in several, _U1_U2.
var fieldCases = map[string]string{
	"I1":  "an owner renews after another took over",
	"I2":  "a delayed renewal arrives while the resource is free again",
	"I3":  "a release is repeated, late, or by an owner that lost the lease",
	"I4":  "two processes have the same owner name, or one restarts before its old lease expired",
	"I5":  "two goroutines of one client acquire the same resource",
	"U1":  "an acquire commits and its reply is lost",
	"U2":  "a renewal is applied and its reply is lost",
	"U3":  "a release fails because its context had ended, and is repeated",
	"U4":  "a wait times out",
	"T1":  "an acquire runs in a transaction older than the TTL",
	"T2":  "an acquire waits for a row lock",
	"T3":  "the clock of the client is an hour off",
	"T4":  "the database's default isolation is serializable",
	"T7":  "a few rows are renewed 20,000 times",
	"T8":  "names are empty, long, not text, or look alike",
	"I6":  "the connection dies between renewals, or Postgres restarts",
	"I7":  "the context of the acquire ends long before the lease",
	"I8":  "a release while a renewal is in flight, or right after the acquire",
	"I9":  "anything of a lease after its loss was reported",
	"I10": "a resource is lost and acquired again within one renewal period",
	"I11": "the holder is stopped beyond its TTL and continued",
	"I12": "the client shuts down while guarded work goes on",
	"U5":  "the context of an acquire ends at the moment of the grant",
	"U6":  "a takeover after a unique violation in one transaction",
	"L1":  "the network drops everything silently",
	"L2":  "a renewal waits for a row lock beyond the TTL",
	"L3":  "a waiter stalls past its life in the queue",
	"L4":  "the application holds every connection of its pool",
	"L5":  "the remaining time is asked for when the last answer is old",
	"T5":  "the role has a statement timeout",
	"T6":  "the pool reaches a standby, then the new primary",
	"W1":  "a release while one waits",
	"W2":  "a thousand wait for one resource",
	"W3":  "a release between being refused and joining the queue",
	"W4":  "the head of the queue is dead, cancelled or late",
	"W5":  "the listening session is killed, silent or refused",
	"W6":  "a long resource name in a notification",
	"W7":  "a waiter's queue entry disappears",
	"J1":  "200 workers claim 10,000 jobs",
	"J2":  "a worker that was given up for dead completes its job",
	"J3":  "a job kills its worker every time",
	"J4":  "a worker is killed",
	"J5":  "a retry meets a queued job with the same unique key",
	"O1":  "ten migrators start at once, and one is killed half way",
	"O2":  "the service uses golang-migrate itself",
}

// Further cases that a test may name. One that a test must name belongs above.
var furtherCases = map[string]string{
	"O3": "a transaction pooler in front of Postgres",
	"O4": "a command that runs under a lease loses it",
	"O5": "an operator frees a stuck resource",
}

func TestFieldCasesAreTested(t *testing.T) {
	t.Parallel()
	tested := testedCases(t)
	for _, number := range slices.Sorted(maps.Keys(fieldCases)) {
		if tested[number] == "" {
			t.Errorf("no test is named for case %s: %s", number, fieldCases[number])
		}
	}
	for _, number := range slices.Sorted(maps.Keys(tested)) {
		if fieldCases[number] == "" && furtherCases[number] == "" {
			t.Errorf("%s names case %s, which is not explained here", tested[number], number)
		}
	}
}

// testedCases maps the number of each case to the name of one of its tests.
func testedCases(t *testing.T) map[string]string {
	t.Helper()
	numbers := regexp.MustCompile(`(_[A-Z]\d{1,2})+$`)
	tested := map[string]string{}
	fset := token.NewFileSet()
	for _, f := range files(t, isTest) {
		tree, err := parser.ParseFile(fset, f.path, f.text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, decl := range tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !isTestName(fn.Name.Name) {
				continue
			}
			for number := range strings.SplitSeq(numbers.FindString(fn.Name.Name), "_") {
				if number != "" {
					tested[number] = fn.Name.Name
				}
			}
		}
	}
	return tested
}

func isTestName(name string) bool {
	return slices.ContainsFunc([]string{"Test", "Fuzz"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
