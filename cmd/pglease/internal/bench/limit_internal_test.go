package bench

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/pgleasetest"
)

// Each UPDATE is noted as it begins, with the session that sent it and how many other sessions have one under way.
const watchRows = `CREATE TABLE %s.seen (id bigserial PRIMARY KEY, pid int NOT NULL, others int NOT NULL);
CREATE FUNCTION %s.see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO %s.seen (pid, others) SELECT pg_backend_pid(), count(*) FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' AND query LIKE 'UPDATE %bench_row%';
	RETURN NULL;
END
$$;
CREATE TRIGGER see BEFORE UPDATE ON %s.bench_row FOR EACH STATEMENT EXECUTE FUNCTION %s.see()`

// A hand-over goes from one process to another, and only one is under way: so with the limit beside it.
func TestLimitOfALineIsInTurn(t *testing.T) {
	t.Parallel()
	for processes, want := range map[int]string{1: "one UPDATE by one connection", 3: "one UPDATE, by each of 3 connections in turn"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := openStage(t, Options{Work: handoff.Name, Waiters: 4, Processes: processes})
			loads, err := handoff.prepare(t.Context(), s)
			if err != nil || loads.limitName != want {
				t.Fatalf("the limit is %q, want %q: %v", loads.limitName, want, err)
			}
			if err := s.execute(t.Context(), watchRows); err != nil {
				t.Fatal(err)
			}
			ops := 0
			for ops < 3*processes {
				did, err := loads.limit.run(t.Context(), 50*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				ops += did.ops
			}
			checkInTurn(t, s, ops, processes)
		})
	}
}

func openStage(t *testing.T, o Options) *stage {
	t.Helper()
	o.URL = pgleasetest.URL(t)
	options, err := o.filled()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{options: options}
	t.Cleanup(func() {
		if err := s.end(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// checkInTurn wants so many UPDATEs of one row, each by the next of the sessions, which do their share and no more.
func checkInTurn(t *testing.T, s *stage, ops, connections int) {
	t.Helper()
	rows, err := s.control.Query(t.Context(), s.sql("SELECT pid, others FROM %s.seen ORDER BY id"))
	if err != nil {
		t.Fatal(err)
	}
	type seen struct{ PID, Others int }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seen])
	if err != nil || len(list) != ops {
		t.Fatalf("%d UPDATEs, want %d: %v", len(list), ops, err)
	}
	by := map[int]int{}
	for i, u := range list {
		by[u.PID]++
		if want := list[i%connections].PID; u.PID != want || u.Others > 0 {
			t.Fatalf("UPDATE %d is by session %d beside %d others, want %d alone", i, u.PID, u.Others, want)
		}
	}
	counts := slices.Collect(maps.Values(by))
	if len(by) != connections || slices.Max(counts)-slices.Min(counts) > 1 {
		t.Errorf("UPDATEs by session: %v, want %d sessions", by, connections)
	}
	var changed, most int
	if err := s.control.QueryRow(t.Context(), s.sql("SELECT count(*), max(n) FROM %s.bench_row")).Scan(&changed, &most); err != nil {
		t.Fatal(err)
	}
	if changed != 1 || most != ops {
		t.Errorf("%d rows, changed up to %d times, want one and %d", changed, most, ops)
	}
}
