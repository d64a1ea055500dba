// Package repocheck holds tests over the repository itself: what a consumer of each package comes
// to compile, how the SQL is written, which faults from the field have a test, and what no file may
// contain. Linters and `sqlc diff` hold the rest, see .ci/run.
package repocheck
