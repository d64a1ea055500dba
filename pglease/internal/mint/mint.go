// Package mint lets package pglease make a fence.Token and nobody else: the package is internal,
// and fence.Token has no exported fields and no constructor from parts.
package mint

// Token is set by package fence. Its result is a fence.Token.
var Token func(resource string, fence int64, lease [16]byte) any
