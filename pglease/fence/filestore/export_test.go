//go:build unix

package filestore

// OnStep has f called as each step of a change is reached, while the lock is held.
func (s *Store) OnStep(f func(step string)) { s.reached = f }
