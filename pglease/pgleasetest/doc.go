// Package pgleasetest helps to test services that use pglease.
//
// A test gets a migrated database of its own in a few lines, and needs no server set up:
//
//	func TestReport(t *testing.T) {
//		t.Parallel()
//		pool := pgleasetest.Pool(t)
//		...
//	}
//
//	func TestMain(m *testing.M) { pgleasetest.Main(m) }
//
// # The server
//
// The tests of one process share a server, which the first of them starts: from binaries of
// Postgres on this machine, or from a download. PGLEASE_TEST_DATABASE_URL names one to use instead;
// its user must be allowed to create databases. PGLEASE_PG_BINDIR and PGLEASE_PG_VERSION pick the
// binaries.
//
// [Main] stops the server. Without it the kernel does when the process ends (on Linux), and the
// next run removes the files.
//
// A server that was started here has fsync off. It is for tests of code, not of crashes.
//
// # Databases
//
// Migrations run once for a process and a set of lines, into a template that each test's database
// is cloned from. A database is dropped when its test is done, except where the test failed on a
// server that was given: then it is kept, and its URL is printed. On a given server the templates
// stay for the next run; they are named pglease_template_..., and may be dropped at any time that
// no test runs.
//
// # Faults
//
// [ExpireLease] makes a lease's time pass without waiting for it. [Faults] tampers with real
// connections: it loses the reply to a statement that the server has committed, loses a request,
// or freezes the network.
package pgleasetest
