// Package peers gives the same work to each of those who lend locks: this library and what people
// would pick instead. Each is used as its own documentation shows.
package peers
