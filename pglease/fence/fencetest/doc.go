// Package fencetest holds a protected resource to the rule of fences. It is the suite that each
// resource of this module passes; run it on your own:
//
//	func TestDevice(t *testing.T) {
//		t.Parallel()
//		fencetest.Run(t, func(t *testing.T) fencetest.Resource {
//			device := newDevice(t) // fresh: it has seen no token
//			return fencetest.Resource{
//				Write: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
//					return device.Send(ctx, token, c.ID)
//				},
//				Establish: device.Establish,
//				History: func(ctx context.Context) ([]fencetest.Entry, error) {
//					...
//				},
//			}
//		})
//	}
//
// # What a resource must offer
//
// Write and History. Write applies one command that carries a token, and tells a stale owner by an
// error for which [fence.IsStale] is true. History returns the commands that took effect, in the
// order in which they did, with the fence that each carried. It must come from the resource itself,
// not from what writers were told: only there does a write show that should have been refused.
// Where a resource keeps its last content alone, let the test record each change at the place
// where the change takes effect.
//
// The rest is optional. A hook that is nil, or a promise that is not made, leaves its checks out;
// the test says so.
//
// # What is checked
//
//	first touch         an untouched resource takes the first token that it sees
//	lower refused       once it has accepted a fence, it refuses lower ones, for ever
//	higher establishes  a higher fence is accepted, and shuts out those before it
//	equal validated     an owner may write more than once; its sequence counts, if it is promised
//	numbers             fences are compared as numbers, also 9 with 10, and near 2^53
//	shared fence        another lease with the same fence is refused
//	establish           raising the watermark shuts out earlier owners before anything is written
//	queue               commands of five owners, delivered in any order: the rule's own answer to each
//	repeated            a command that is sent again is applied once, and refused after a takeover
//	crash               death between check and effect leaves all of the command or nothing
//	writers             32 writers at random: accepted fences never decrease, no accepted command
//	                    is lost, and no refused one takes effect
//
// The last runs for a second, or 200 ms with -short, or as long as PGLEASE_FENCETEST_TIME says.
package fencetest
