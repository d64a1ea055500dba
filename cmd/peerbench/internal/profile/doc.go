// Package profile measures what one operation costs: the processor's time in the server, which is that of the
// Postgres process behind the connection, the processor's time in this process, and bytes of WAL. Neither waits
// for a disk nor turns that others have on the processor count, so that it comes out much the same on a busy
// machine, where a rate would not.
//
// Everything of this library is driven through its API, by one caller, over pools of one connection.
package profile
