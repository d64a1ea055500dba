// Package growth measures how the cost of leases grows: with resources, with waiters, with recorded
// tenures, with leases that are renewed, and with the age of an open snapshot.
package growth
