// Package queues gives the same work to two job queues on Postgres: to claim and to complete jobs
// that do nothing.
package queues
