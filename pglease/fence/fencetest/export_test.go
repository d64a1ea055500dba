package fencetest

import "context"

// Check runs the suite's checks without a testing.T, each on a resource of its own, and returns
// what each said.
func Check(ctx context.Context, newResource func() Resource) map[string]error {
	said := map[string]error{}
	for _, c := range checks {
		r := newResource()
		if err := r.complete(); err != nil {
			said[c.name] = err
		} else if c.needs == nil || c.needs(r) {
			said[c.name] = c.run(ctx, newSuite(r))
		}
	}
	return said
}
