package fencetest

import (
	"fmt"

	"github.com/pglease/pglease/pglease/fence"
)

// CheckHistory returns nil if the order of fences was kept: none is below one before it. Two leases
// that share a fence, and both took effect, are an error that matches fence.ErrSharedFence. Any
// resource's history can be held to this, also that of a running system.
func CheckHistory(entries []Entry) error {
	for i := 1; i < len(entries); i++ {
		before, e := entries[i-1], entries[i]
		switch {
		case e.Fence < before.Fence:
			return fmt.Errorf("entry %d, %s, was accepted under fence %d after %s under fence %d",
				i, e.Command, e.Fence, before.Command, before.Fence)
		case e.Fence == before.Fence && e.LeaseID != before.LeaseID:
			return fmt.Errorf("entries %d and %d, %s and %s: %w: %d, of %s and %s",
				i-1, i, before.Command, e.Command, fence.ErrSharedFence, e.Fence, before.LeaseID, e.LeaseID)
		}
	}
	return nil
}
