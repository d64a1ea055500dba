// Package contest runs the peers beside one another and beside their limit, and prints tables.
package contest
