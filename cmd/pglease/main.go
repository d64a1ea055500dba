// Command pglease is the operator's tool for leases on Postgres.
//
// It exits with 0 when it did what was asked, 1 on an error and 2 on a wrong call. What was asked
// for goes to standard output, all else to standard error.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
