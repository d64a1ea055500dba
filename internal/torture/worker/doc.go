// Package worker is a process of the torture harness: it acquires leases, works under them, and
// publishes to protected resources, over and over, and writes down each call before it is made and
// after it has returned. Some of its sessions are careless: they go on though their lease is lost, so
// that the resource alone protects itself.
package worker
