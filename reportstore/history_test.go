package reportstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

func TestHistoryKeepsEveryVersion(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	if h := history(t, store); len(h) != 0 {
		t.Errorf("before anything: %+v", h)
	}
	first := publish(t, store, token(t, 41), "one", 0, 1)
	publish(t, store, token(t, 42), "three", 1, 2)
	h := history(t, store)
	if len(h) != 2 {
		t.Fatalf("got %+v", h)
	}
	v := h[0]
	if v.Number != 1 || v.Size != 3 || v.Hash != first.Hash || v.Fence != 41 || v.LeaseID != token(t, 41).LeaseID() ||
		v.Owner != "W41" || v.GreatestFence != 41 || !v.PublishedAt.Equal(first.PublishedAt) {
		t.Errorf("got %+v, published %+v", v, first)
	}
	old, err := store.ReadVersion(t.Context(), july, 1)
	if err != nil || string(old.Body) != "one" || old.Version != 1 || old.Owner != "W41" || old.ID != july {
		t.Errorf("version 1: %+v, %v", old, err)
	}
	for _, version := range []int64{0, 3, -1} {
		if _, err := store.ReadVersion(t.Context(), july, version); !errors.Is(err, reportstore.ErrNotFound) || !strings.Contains(err.Error(), "the report is at version 2") {
			t.Errorf("version %d: %v", version, err)
		}
	}
	if _, err := store.ReadVersion(t.Context(), "other", 1); !errors.Is(err, reportstore.ErrNotFound) || !strings.HasSuffix(err.Error(), "report not found") {
		t.Errorf("no report: %v", err)
	}
}

func TestRejectionsComeNewestFirst(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	publish(t, store, token(t, 42), "one", 0, 1)
	for n := 1; n <= 5; n++ {
		if err := store.Establish(t.Context(), token(t, n), july); !errors.Is(err, fence.ErrStaleOwner) {
			t.Fatal(err)
		}
	}
	for i, r := range rejected(t, store, 5) {
		if r.Fence != int64(5-i) {
			t.Errorf("entry %d has fence %d", i, r.Fence)
		}
	}
}

func TestRegressions(t *testing.T) {
	t.Parallel()
	mine, twin := fence.LeaseID{1}, fence.LeaseID{2}
	version := func(number, fence, greatest int64, lease fence.LeaseID) reportstore.Version {
		return reportstore.Version{Number: number, Fence: fence, GreatestFence: greatest, LeaseID: lease}
	}
	for _, tc := range []struct {
		name    string
		history []reportstore.Version
		want    []int64
	}{
		{"none", nil, nil},
		{"in order", []reportstore.Version{version(1, 1, 1, mine), version(2, 1, 1, mine), version(3, 4, 4, twin)}, nil},
		{"back", []reportstore.Version{version(1, 2, 2, mine), version(2, 1, 2, twin), version(3, 2, 2, mine)}, []int64{2}},
		{"below what was established", []reportstore.Version{version(1, 1, 2, mine)}, []int64{1}},
		{"a twin", []reportstore.Version{version(1, 2, 2, mine), version(2, 2, 2, twin)}, []int64{2}},
		{"nobody named", []reportstore.Version{version(1, 0, 2, fence.LeaseID{})}, []int64{1}},
		{"after a pruned beginning", []reportstore.Version{version(5, 7, 7, mine), version(6, 6, 7, twin)}, []int64{6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := reportstore.Regressions(tc.history)
			if len(got) != len(tc.want) {
				t.Fatalf("got %+v, want versions %v", got, tc.want)
			}
			for i := range got {
				if got[i].Number != tc.want[i] {
					t.Errorf("got version %d, want %d", got[i].Number, tc.want[i])
				}
			}
		})
	}
}
