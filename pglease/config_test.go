package pglease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pglease/pglease/pglease"
)

func TestConfigIsRefusedWithAllItsProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config pglease.Config
		says   []string
	}{
		"TTL below 100 ms":          {pglease.Config{TTL: 99 * time.Millisecond}, []string{"TTL"}},
		"TTL above 24 h":            {pglease.Config{TTL: 24*time.Hour + 1}, []string{"TTL"}},
		"renewal above half of TTL": {pglease.Config{TTL: time.Second, RenewEvery: 501 * time.Millisecond}, []string{"RenewEvery"}},
		"a negative":                {pglease.Config{TTL: -1, MaxLeases: -1}, []string{"TTL", "MaxLeases"}},
		"a unit that never fits":    {pglease.Config{UnitOfWork: 25 * time.Second}, []string{"UnitOfWork"}},
		"drift":                     {pglease.Config{ClockDrift: 0.5}, []string{"ClockDrift"}},
		"schema":                    {pglease.Config{Schema: strings.Repeat("s", 61)}, []string{"schema"}},
		"schema of Postgres":        {pglease.Config{Schema: "pg_lease"}, []string{"pg_"}},
		"owner":                     {pglease.Config{Owner: "a\x00"}, []string{"Owner"}},
		"several":                   {pglease.Config{TTL: time.Millisecond, Owner: "\xff", Schema: "a\x00"}, []string{"TTL", "Owner", "NUL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := pglease.New(t.Context(), nil, c.config) // a nil pool: nothing may be sent
			if !errors.Is(err, pglease.ErrInvalidConfig) {
				t.Fatalf("New: %v", err)
			}
			for _, word := range c.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not name %s", err, word)
				}
			}
		})
	}
}

func TestBadCallsAreRefusedBeforeAnySQL_T8(t *testing.T) {
	t.Parallel()
	inBubble(t, pglease.Config{}, func(t *testing.T, f *fakeAuthority, c *pglease.Client) {
		for _, name := range []string{"", strings.Repeat("n", 513), "a\x00b", "a\xffb"} {
			if _, err := c.TryAcquire(t.Context(), name); !errors.Is(err, pglease.ErrInvalidResource) {
				t.Errorf("TryAcquire(%q): %v", name, err)
			}
			if _, err := c.Acquire(t.Context(), name); !errors.Is(err, pglease.ErrInvalidResource) {
				t.Errorf("Acquire(%q): %v", name, err)
			}
			if err := c.Do(t.Context(), name, func(context.Context, *pglease.Lease) error { return nil }); !errors.Is(err, pglease.ErrInvalidResource) {
				t.Errorf("Do(%q): %v", name, err)
			}
		}
		for _, option := range []pglease.AcquireOption{
			pglease.WithTTL(0), pglease.WithTTL(99 * time.Millisecond), pglease.WithTTL(25 * time.Hour), pglease.WithRequestID(pglease.RequestID{}),
		} {
			if _, err := c.TryAcquire(t.Context(), "r", option); !errors.Is(err, pglease.ErrInvalidConfig) {
				t.Errorf("a bad option: %v", err)
			}
		}
		if len(f.calls) > 0 {
			t.Errorf("sent: %v", f.calls)
		}
	})
}
