// Package sequences plays twelve interleavings in which leases go wrong elsewhere, each as one named
// test. A comment at each test tells the interleaving as a table: who does what, from top to bottom.
//
// The leases are in one database and the protected reports in another, so that either can be cut off
// without the other. Each of the twelve ends with a look at the history that the report itself keeps: which
// versions it accepted, under which fence, and what it refused. Who owned the lease when is looked at
// too, but proves nothing about the report.
//
// Beside them is one about a process that is killed while its session sleeps in the server.
//
//	go test -v ./internal/torture/sequences
package sequences
