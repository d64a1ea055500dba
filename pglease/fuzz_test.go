package pglease_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// FuzzNames leases whatever name comes, in a real database. A name is refused before anything is sent, or
// it is leased, found again byte for byte, and is no other name's lease.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "r", "report/2026-07", " ", "a\x00b", "\xff", "ä", "a\u0308", "'; --", "\\", strings.Repeat("n", 512), strings.Repeat("n", 513), "\u202e", "%_"} {
		f.Add(name)
	}
	pool, err := pgxpool.New(f.Context(), pgleasetest.URL(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(pool.Close)
	f.Fuzz(func(t *testing.T, name string) {
		client := newClient(t, pool, pglease.Config{})
		lease, err := client.TryAcquire(t.Context(), name)
		if !allowed(name) {
			if lease != nil || !errors.Is(err, fence.ErrInvalidResource) {
				t.Fatalf("%q: %v, %v", name, lease, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if back, err := fence.Parse(lease.Token().String()); err != nil || back != lease.Token() || back.Resource() != name {
			t.Errorf("%q: token %v, %v", name, back, err)
		}
		d, err := client.Describe(t.Context(), name)
		if err != nil || !d.Held || d.Resource != name || d.Fence != lease.Token().Fence() {
			t.Errorf("%q: %+v, %v", name, d, err)
		}
		for _, other := range []string{name + " ", strings.ToUpper(name), name[:len(name)-1]} {
			if other == name || fence.CheckResource(other) != nil {
				continue
			}
			if d, err := client.Describe(t.Context(), other); err != nil || d.Held {
				t.Errorf("%q is held by the owner of %q: %+v, %v", other, name, d, err)
			}
		}
		release(t, lease)
	})
}

// allowed tells which names there may be, put in other words than the code has.
func allowed(name string) bool {
	for _, r := range name {
		if r < 0x20 || (r >= 0x7f && r <= 0x9f) {
			return false
		}
	}
	return name != "" && len(name) <= 512 && utf8.ValidString(name)
}
