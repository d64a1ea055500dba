// Package containers runs the story of a report between containers: an owner that is cut off with its
// network, one that is paused, and a database that is paused. It is a module of its own because of what
// testcontainers-go brings along.
//
// It needs a container engine and an image with Postgres, which is never pulled:
//
//	internal/containers/mkimage pglease-postgres
//	PGLEASE_CONTAINER_IMAGE=pglease-postgres go test -C internal/containers ./...
package containers
