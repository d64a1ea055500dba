package reportstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// nowhere is a store whose every statement fails: what passes the checks is seen to.
func nowhere(t *testing.T) *reportstore.Store {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return newStore(t, pool)
}

func TestArgumentsAreCheckedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	store := nowhere(t)
	for _, tc := range []struct {
		name  string
		token fence.Token
		r     reportstore.Report
		want  error
	}{
		{"zero token", fence.Token{}, reportstore.Report{ID: july}, fence.ErrInvalidToken},
		{"token of another resource", tokenOf(t, "report/2026-08", 41, 1), reportstore.Report{ID: july}, fence.ErrOtherResource},
		{"version", token(t, 41), reportstore.Report{ID: july, ExpectedVersion: -2}, reportstore.ErrInvalidReport},
		{"body", token(t, 41), reportstore.Report{ID: july, Body: make([]byte, reportstore.MaxBodySize+1)}, reportstore.ErrInvalidReport},
		{"owner too long", token(t, 41), reportstore.Report{ID: july, Owner: strings.Repeat("o", 257)}, reportstore.ErrInvalidReport},
		{"owner with NUL", token(t, 41), reportstore.Report{ID: july, Owner: "a\x00"}, reportstore.ErrInvalidReport},
		{"owner not UTF-8", token(t, 41), reportstore.Report{ID: july, Owner: "a\xff"}, reportstore.ErrInvalidReport},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := store.Publish(t.Context(), tc.token, tc.r)
			var typed *reportstore.Error
			if !errors.Is(err, tc.want) || !errors.As(err, &typed) || typed.Op != "publish" || typed.Report != july {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if _, err := store.PublishTx(t.Context(), nil, tc.token, tc.r); !errors.Is(err, tc.want) {
				t.Errorf("in a transaction: got %v, want %v", err, tc.want)
			}
		})
	}
	if err := store.Establish(t.Context(), fence.Token{}, july); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("establish: %v", err)
	}
	if err := store.Establish(t.Context(), tokenOf(t, "other", 41, 1), july); !errors.Is(err, fence.ErrOtherResource) {
		t.Errorf("establish: %v", err)
	}
}

func TestUnreachableDatabaseIsNoRefusal(t *testing.T) {
	t.Parallel()
	_, err := nowhere(t).Publish(t.Context(), token(t, 41), reportstore.Report{ID: july})
	if err == nil || errors.Is(err, fence.ErrStaleOwner) || errors.Is(err, reportstore.ErrConflict) {
		t.Errorf("got %v", err)
	}
}

func TestNames_T8(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	for _, name := range []string{"", strings.Repeat("n", 513), "a\x00b", "a\xffb"} {
		_, err := store.Publish(t.Context(), token(t, 41), reportstore.Report{ID: name})
		if !errors.Is(err, fence.ErrInvalidResource) {
			t.Errorf("publish %q: %v", name, err)
		}
		if err := store.Establish(t.Context(), token(t, 41), name); !errors.Is(err, fence.ErrInvalidResource) {
			t.Errorf("establish %q: %v", name, err)
		}
		for _, err := range readErrors(t, store, name) {
			if !errors.Is(err, fence.ErrInvalidResource) {
				t.Errorf("read %q: %v", name, err)
			}
		}
	}
	// Each is a report of its own, byte for byte.
	names := []string{
		"a", "A", "a ", " a", `a"b`, "a'b", `a\b`, "a;--", "a/*schema.*/b", "$1", "📈", "é", "e\u0301", "ß", "ss",
		strings.Repeat("n", 512), "a:b:c",
	}
	for _, name := range names {
		publish(t, store, tokenOf(t, name, 41, 1), "body of "+name, 0, 1)
	}
	for _, name := range names {
		got, err := store.Read(t.Context(), name)
		if err != nil || string(got.Body) != "body of "+name || got.ID != name {
			t.Errorf("%q: got %q, %v", name, got.Body, err)
		}
	}
}

func readErrors(t *testing.T, store *reportstore.Store, name string) []error {
	t.Helper()
	_, read := store.Read(t.Context(), name)
	_, version := store.ReadVersion(t.Context(), name, 1)
	_, versions := store.History(t.Context(), name)
	_, rejections := store.Rejections(t.Context(), name)
	_, watermark := store.Watermark(t.Context(), name)
	return []error{read, version, versions, rejections, watermark}
}

func TestNewTellsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := reportstore.New(nil, reportstore.Config{Schema: "pg_x", Owner: "a\x00"})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"pool", "pg_x", "owner"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not speak of the %s", err, part)
		}
	}
}
