//go:build linux

package torture

import (
	"context"
	"time"

	"github.com/pglease/pglease/pglease"
)

// crashes are the faults of servers. One is made at a time.
var crashes = []fault{
	{authorityCrashed, 3, func(ctx context.Context, l *leg, _ *child, _ draw) {
		from := time.Now()
		if l.failed(l.servers.crash(ctx)) {
			return
		}
		l.did(authorityCrashed, "authority", "", from)
	}},
	{resourceCrashed, 2, func(ctx context.Context, l *leg, _ *child, _ draw) {
		from := time.Now()
		if l.failed(l.servers.crashResource(ctx)) {
			return
		}
		l.did(resourceCrashed, "resource", "", from)
	}},
	{standbyPromoted, 4, func(ctx context.Context, l *leg, _ *child, d draw) {
		from := time.Now()
		done, err := l.servers.failover(ctx, 100*time.Millisecond+d.of(time.Second))
		if !l.failed(err) && done {
			l.did(standbyPromoted, "authority", "", from)
		}
	}},
	{authorityRestored, 2, func(ctx context.Context, l *leg, _ *child, d draw) {
		from := time.Now()
		if !l.failed(l.servers.restore(ctx, d.of(3*time.Second))) {
			l.did(authorityRestored, "authority", "", from)
		}
	}},
	{clockSet, 3, func(ctx context.Context, l *leg, _ *child, d draw) {
		if l.servers.clockLib == "" {
			return
		}
		from := time.Now()
		days := d.choice%5 - 2
		if l.failed(l.servers.setClock(days)) {
			return
		}
		l.did(clockSet, "authority", time.Duration(days*24*int(time.Hour)).String(), from)
		l.unstick(ctx)
	}},
}

// unstick breaks the leases that a step back has made live for days: nobody else will, where their
// holders are gone.
func (l *leg) unstick(ctx context.Context) {
	wait(ctx, 2*l.TTL)
	for _, resource := range l.resources {
		l.breakLease(ctx, resource, func(d pglease.Description) bool { return d.Remaining > time.Hour })
	}
}
