package reportstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

const period = "2026-07"

func TestRunIsOneForReportAndPeriod(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	run, started, err := store.StartRun(t.Context(), july, period, "W1")
	if err != nil || !started || run.Number != 1 || run.Status != reportstore.RunStarted || run.Worker != "W1" || run.StartedAt.IsZero() || !run.PublishedAt.IsZero() {
		t.Fatalf("started %v, %+v, %v", started, run, err)
	}
	again, started, err := store.StartRun(t.Context(), july, period, "W2")
	if err != nil || started || again != run {
		t.Errorf("again: started %v, %+v, %v", started, again, err)
	}
	for _, other := range [][2]string{{july, "2026-08"}, {"report/2026-08", period}} {
		if _, started, err := store.StartRun(t.Context(), other[0], other[1], ""); err != nil || !started {
			t.Errorf("%v: started %v, %v", other, started, err)
		}
	}
	if read, err := store.Run(t.Context(), july, period); err != nil || read != run {
		t.Errorf("read %+v, %v", read, err)
	}
	if _, err := store.Run(t.Context(), july, "2026-09"); !errors.Is(err, reportstore.ErrNotFound) {
		t.Errorf("no such run: %v", err)
	}
}

// Of many who ask at once one starts the run, and the others learn which one.
func TestRivalsForARun(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		store := newStore(t, withSettings(t, map[string]string{"default_transaction_isolation": level}))
		var wg sync.WaitGroup
		var mu sync.Mutex
		var by []string
		for i := range 8 {
			wg.Go(func() {
				name := fmt.Sprint("W", i)
				run, started, err := store.StartRun(t.Context(), july, period, name)
				if err != nil || started != (run.Worker == name) {
					t.Errorf("%s: started %v, %+v, %v", level, started, run, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if started {
					by = append(by, name)
				}
			})
		}
		wg.Wait()
		if len(by) != 1 {
			t.Errorf("%s: it was started by %v", level, by)
		}
	}
}

// A run counts when its transaction commits, and not before.
func TestRunStartsWithItsTransaction(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	undone := errors.New("undone")
	for _, outcome := range []error{undone, nil} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, started, err := store.StartRunTx(t.Context(), tx, july, period, ""); err != nil || !started {
				t.Errorf("started %v, %v", started, err)
			}
			return outcome
		})
		if !errors.Is(err, outcome) {
			t.Fatal(err)
		}
	}
}

func TestFinishedRunStaysFinished(t *testing.T) {
	t.Parallel()
	_, store := setUp(t)
	finish := func(number, run int, version int64) (reportstore.Run, error) {
		return store.FinishRun(t.Context(), token(t, number), july, period, run, version)
	}
	if _, err := finish(41, 1, 1); !errors.Is(err, reportstore.ErrNotFound) {
		t.Errorf("before it was started: %v", err)
	}
	if _, _, err := store.StartRun(t.Context(), july, period, ""); err != nil {
		t.Fatal(err)
	}
	done, err := finish(41, 1, 3)
	if err != nil || done.Status != reportstore.RunPublished || done.Version != 3 || done.Fence != 41 || done.PublishedAt.IsZero() {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, number := range []int{41, 42} { // a repetition, and the next attempt at the same work
		if again, err := finish(number, 1, 4); err != nil || again != done {
			t.Errorf("again under %d: %+v, %v", number, again, err)
		}
	}
	if _, err := finish(40, 1, 2); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("under an older fence: %v", err)
	}
	if again, started, err := store.StartRun(t.Context(), july, period, ""); err != nil || started || again != done {
		t.Errorf("asked again: %v, %+v, %v", started, again, err)
	}
}

// A run that is begun again is another number, and who works on the one before is refused.
func TestRestartedRun(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	first, _, err := store.StartRun(t.Context(), july, period, "W1")
	if err != nil {
		t.Fatal(err)
	}
	restart := func(seen reportstore.Run) (run reportstore.Run, err error) {
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			run, err = store.RestartRunTx(t.Context(), tx, seen, "W2")
			return err
		})
		return run, err
	}
	second, err := restart(first)
	if err != nil || second.Number != 2 || second.Status != reportstore.RunStarted || second.Worker != "W2" {
		t.Fatalf("%+v, %v", second, err)
	}
	if _, err := restart(first); !errors.Is(err, reportstore.ErrConflict) {
		t.Errorf("by a look that is out of date: %v", err)
	}
	if _, err := store.FinishRun(t.Context(), token(t, 41), july, period, 1, 1); !errors.Is(err, reportstore.ErrConflict) {
		t.Errorf("the run before: %v", err)
	}
	done, err := store.FinishRun(t.Context(), token(t, 42), july, period, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	third, err := restart(done)
	if err != nil || third.Number != 3 || third.Version != 0 || third.Fence != 42 {
		t.Fatalf("%+v, %v", third, err)
	}
	if _, err := store.FinishRun(t.Context(), token(t, 41), july, period, 3, 2); !errors.Is(err, fence.ErrStaleOwner) {
		t.Errorf("under an older fence: %v", err)
	}
}

func TestRunArgumentsAreCheckedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	store := nowhere(t)
	for name, c := range map[string]struct {
		report, period, worker string
		want                   error
	}{
		"no report":     {"", period, "", fence.ErrInvalidResource},
		"no period":     {july, "", "", reportstore.ErrInvalidRun},
		"long period":   {july, strings.Repeat("p", reportstore.MaxPeriodLength+1), "", reportstore.ErrInvalidRun},
		"NUL in period": {july, "a\x00", "", reportstore.ErrInvalidRun},
		"worker":        {july, period, "a\xff", reportstore.ErrInvalidRun},
		"long worker":   {july, period, strings.Repeat("w", reportstore.MaxWorkerLength+1), reportstore.ErrInvalidRun},
	} {
		_, _, err := store.StartRun(t.Context(), c.report, c.period, c.worker)
		_, _, inTx := store.StartRunTx(t.Context(), nil, c.report, c.period, c.worker)
		_, again := store.RestartRunTx(t.Context(), nil, reportstore.Run{Report: c.report, Period: c.period}, c.worker)
		for _, err := range []error{err, inTx, again} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	finish := func(token fence.Token, number int, version int64) error {
		_, err := store.FinishRun(t.Context(), token, july, period, number, version)
		return err
	}
	if err := finish(fence.Token{}, 1, 1); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("no token: %v", err)
	}
	if err := finish(tokenOf(t, "other", 41, 1), 1, 1); !errors.Is(err, fence.ErrOtherResource) {
		t.Errorf("another's token: %v", err)
	}
	for _, n := range [][2]int64{{0, 1}, {1, 0}} {
		if err := finish(token(t, 41), int(n[0]), n[1]); !errors.Is(err, reportstore.ErrInvalidRun) {
			t.Errorf("%v: %v", n, err)
		}
	}
}

// psql is held to it too.
func TestRunsOnlyGoOn(t *testing.T) {
	t.Parallel()
	pool, store := setUp(t)
	if _, _, err := store.StartRun(t.Context(), july, period, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := store.FinishRun(t.Context(), token(t, 41), july, period, 1, 1); err != nil {
		t.Fatal(err)
	}
	refused(t, pool, "23505", "INSERT INTO pglease.report_runs (report_id, period) VALUES ('report/2026-07', '2026-07')")
	refused(t, pool, "PGF03", "UPDATE pglease.report_runs SET greatest_fence = 40")
	refused(t, pool, "PGF03", "UPDATE pglease.report_runs SET run = 3")
	refused(t, pool, "PGF03", "UPDATE pglease.report_runs SET period = 'another'")
	refused(t, pool, "PGF03", "UPDATE pglease.report_runs SET status = 'started', published_at = NULL, version = NULL")
	refused(t, pool, "23514", "UPDATE pglease.report_runs SET version = NULL")
}
