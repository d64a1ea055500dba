// Command peerbench does the same work with this library and with what people would pick instead,
// each on a real server that it starts on loopback and stops, and prints one table.
//
// It exits with 0 when everything that was asked for was measured, 1 on an error or where a peer is
// not on this machine, and 2 on a wrong call.
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
