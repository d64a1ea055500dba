// Package failover fails, restores and moves the database of the leases, again and again, while clients go
// on with one URL that names both servers. What it looks at is the order of the fences that were handed
// out, and the history of reports that are protected by them. What each test shows stands in
// docs/proof.md.
//
//	go test -v ./internal/torture/failover/...
//	PGLEASE_REPEAT=50 go test -v -timeout 2h -run 'TestLossyFailovers|TestSynchronousFailovers' ./internal/torture/failover
//
// The second command has been run in full, on one machine with two processors that had other work too, in
// 53 minutes, Postgres 15, without a failover grace:
//
//	what                                         failovers  grants  lost  violations
//	asynchronous, clocks agree or 10 s behind          100    6589  2637  0
//	synchronous                                         50    2331     0  0
package failover
