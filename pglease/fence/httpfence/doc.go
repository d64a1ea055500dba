// Package httpfence carries fence tokens over HTTP, and holds an HTTP service to them.
//
// # The header
//
// A request that changes something names its owner:
//
//	Pglease-Fence: 42:0197a3c2-6c1e-7d6f-8f5b-2f1f6a0c9b11:report/2026-07
//
// It is the text form of a [fence.Token], with each byte but letters, digits and - . _ ~ : / written
// as % and two hexadecimal digits in upper case, so that names in any script pass through proxies
// as they are:
//
//	Pglease-Fence = fence ":" lease-id ":" resource
//	fence         = 1*16DIGIT                      ; no leading zero
//	lease-id      = 8HEX "-" 4HEX "-" 4HEX "-" 4HEX "-" 12HEX  ; lower case
//	resource      = 1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / ":" / "/" / "%" 2HEXDIG )
//
// Each token has one form, and nothing else is accepted. The header comes once. It is no number of
// the structured fields of RFC 9651: those end at fifteen digits, a fence may have sixteen.
//
// # The client
//
//	client := &http.Client{Transport: &httpfence.Transport{Token: lease.Token()}}
//	response, err := client.Post(...)
//	err = httpfence.ResponseError(response) // fence.IsStale(err): the lease is over
//
// # A service with its data in Postgres
//
//	guard, err := httpfence.New(pool, httpfence.Config{Resource: func(r *http.Request) string {
//		return "device/" + r.PathValue("id")
//	}})
//	mux.Handle("PUT /devices/{id}", guard.Handler(handler))
//
// The handler makes its changes in the transaction that [Tx] returns. The watermark is raised in the
// same transaction, and the reply is sent when it has been committed. So:
//
//   - No change that a handler makes in that transaction is committed under a lower fence than one
//     before it, at whatever speed requests travel, and whoever crashes.
//   - A reply below 400 says that the change was committed. One of the handler's own from 400 on says
//     that it was not; the fence of a newer owner is kept all the same. What this package replies
//     tells which.
//   - With an Idempotency-Key, a request that is repeated is not handled again: the first reply is sent
//     again. A key names one request on one resource, under whatever token; a reply is kept with it,
//     up to about 700 kB.
//   - With a Pglease-Sequence, a positive number, requests under one token are handled in the order of
//     those numbers: one that comes after a later one is refused.
//
// What a handler does elsewhere than in that transaction, a mail or a file, is not protected: if the
// commit fails, or the process dies before it, that is done and the watermark has not heard of it.
// Requests of one resource are handled one after another.
//
// # What is refused
//
//	428  #missing          there is no token
//	400  #malformed        the header is not a token's, or comes twice
//	400  #other-resource   the token is that of another resource than the request changes
//	412  #stale-owner      the resource has accepted a newer token
//	409  #out-of-order     the token's owner has sent a later command already
//	413  #too-large        the request is too large to be kept until its turn
//	503  #not-applied      nothing was changed; the request may be sent again
//	500  #too-large        the reply is too large to be kept until the commit; nothing was changed
//	502  #unknown-outcome  the request may have taken effect
//
// The body is a problem document of RFC 9457 whose type is [ProblemType] and the word above. That
// of a stale owner has both fences in it, and never the lease of the newer owner. A refusal is
// recorded as fence.Watermarks does.
//
// GET, HEAD, OPTIONS and TRACE change nothing and are let through without a token.
//
// # A gateway for a device that cannot check
//
//	http.ListenAndServe(address, guard.Gateway(device, nil)) // device is its *url.URL
//
// [Guard.Gateway] stands before a service that knows nothing of fences. For each request it raises the
// watermark and commits that; then, under the lock of the watermark, which all gateways on that
// database share, it judges the token again, forwards the request and waits for the answer. So:
//
//   - Requests are forwarded in the order of their fences: after one, none with a lower.
//   - A request is forwarded when the one before it was answered, or given up: not while the device may
//     still be at it. The fence is on record before the device hears of the request, so a crash
//     leaves a watermark that is too high, which is harmless.
//   - That a client goes away does not take a request back which the device has.
//
// That has limits, because the lock and the device are two things. A request is given up when no
// answer came within Config.Timeout, when its gateway is killed or stands still for longer than that,
// or when the connection to Postgres breaks meanwhile. The next one is forwarded then, and the device
// may carry out the older one after it. A gateway that stands still looks at the time before it
// sends, and at the lock before it says that all went well, but it can be stopped between the look
// and the sending like anybody else. So let the device drop a request whose connection is gone, be
// quicker than the timeout, or check fences itself: the header is passed on. Where it does none of
// these, set a long timeout: it is how long a dead gateway keeps a device to itself. And nobody must
// reach the device by another way.
package httpfence
