package growth

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/cmd/peerbench/internal/contest"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
	"github.com/pglease/pglease/pglease/pgleasetest"
)

// Each UPDATE is noted as it begins, with the session that sent it and how many other sessions have one under way.
const watchRows = `CREATE TABLE seen (id bigserial PRIMARY KEY, pid int NOT NULL, others int NOT NULL);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO seen (pid, others) SELECT pg_backend_pid(), count(*) FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' AND query LIKE 'UPDATE limit_row%';
	RETURN NULL;
END
$$;
CREATE TRIGGER see BEFORE UPDATE ON limit_row FOR EACH STATEMENT EXECUTE FUNCTION see()`

// A hand-over goes from one process to another, and only one is under way: so with the limit beside it.
func TestLimitOfALineIsInTurn(t *testing.T) {
	t.Parallel()
	for waiters, connections := range map[int]int{1: 2, 9: processes} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			t.Parallel()
			url := pgleasetest.URL(t)
			s := &stage{Options: Options{For: 100 * time.Millisecond, Rounds: 3, Notice: io.Discard}, server: servers.Server{Address: url}}
			if err := s.prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.control.Close()
			_, end, err := contest.LimitInTurn(t.Context(), url, 1) // makes the table
			if err != nil {
				t.Fatal(err)
			}
			end()
			if _, err := s.control.Exec(t.Context(), watchRows); err != nil {
				t.Fatal(err)
			}
			c := Curve{Unit: "hand-over"}
			if err := s.line(t.Context(), &c, waiters); err != nil {
				t.Fatal(err)
			}
			checkInTurn(t, s, connections)
		})
	}
}

// checkInTurn wants UPDATEs of one row, each by the next of so many sessions.
func checkInTurn(t *testing.T, s *stage, connections int) {
	t.Helper()
	rows, err := s.control.Query(t.Context(), "SELECT pid, others FROM seen ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	type seen struct{ PID, Others int }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seen])
	if err != nil || len(list) < 2*connections {
		t.Fatalf("%d UPDATEs: %v", len(list), err)
	}
	var pids []int
	for i, u := range list {
		if i < connections && !slices.Contains(pids, u.PID) {
			pids = append(pids, u.PID)
		}
		if want := list[i%connections].PID; u.PID != want || u.Others > 0 {
			t.Fatalf("UPDATE %d is by session %d beside %d others, want %d alone", i, u.PID, u.Others, want)
		}
	}
	if len(pids) != connections {
		t.Errorf("the sessions are %v, want %d", pids, connections)
	}
	var changed, most int
	if err := s.control.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE n > 0), max(n) FROM limit_row").Scan(&changed, &most); err != nil {
		t.Fatal(err)
	}
	if changed != 1 || most != len(list) {
		t.Errorf("%d rows were changed, up to %d times, want one and %d", changed, most, len(list))
	}
}
