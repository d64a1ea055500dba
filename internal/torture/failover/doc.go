// Package failover fails, restores and moves the database of the leases, again and again, while clients go
// on with one URL that names both servers. What it looks at is the order of the fences that were handed
// out, and the history of a report that is protected by them.
//
//	go test -v ./internal/torture/failover
//	PGLEASE_REPEAT=50 go test -v -timeout 60m -run 'TestLossyFailovers|TestSynchronousFailovers' ./internal/torture/failover
package failover
