// Package bench measures what a database sustains of this library's work, beside what it sustains
// of bare single-row UPDATEs.
//
// The limit is measured in the same run, by the same number of connections, in rounds: each round
// runs the work and its limit for the same time, one after the other, in the opposite order to the
// round before. What disturbs a machine for a while then disturbs both. A figure is the median of
// the rounds, and the ratio is the median of the rounds' ratios; latencies are of all rounds
// together. Nothing is recorded of a short run of each before the first round, in which
// connections are made and statements prepared.
//
// A run takes place in a schema of its own, which it makes and drops.
//
// Statements an operation are those that this process sent. The write-ahead log is the server's:
// what others write to it meanwhile counts too, and a checkpoint makes the changes that follow it
// larger.
package bench
