package profile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const wakeupsNote = "A notification that no session waits for, committed by itself and not synced. The time is that of all of the " +
	"server's processes: before version 19 each session of the database that listens is woken by it, whatever it listens to."

// wakeups sends notifications past sessions that listen to something else.
func (s *stage) wakeups(ctx context.Context) ([]load, error) {
	sizes := []int{0, 8, 64}
	listeners := make([]*pgx.Conn, sizes[len(sizes)-1])
	s.atEnd(func() {
		for _, conn := range listeners {
			if conn != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
			}
		}
	})
	for i := range listeners {
		var err error
		if listeners[i], err = pgx.Connect(ctx, s.address); err != nil {
			return nil, err
		}
	}
	t, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	if err := execute(ctx, t.Pool, "SET synchronous_commit = off"); err != nil {
		return nil, err
	}
	var loads []load
	for _, n := range sizes {
		row := s.row("wakeups", fmt.Sprintf("notify-%d", n), fmt.Sprintf("NOTIFY, %d idle sessions listen", n))
		loads = append(loads, s.notifying(ctx, row, t, listeners[:n]))
	}
	return loads, nil
}

func (s *stage) notifying(ctx context.Context, row string, t *session, listeners []*pgx.Conn) load {
	pids := []uint32{t.pid}
	for _, conn := range listeners {
		pids = append(pids, conn.PgConn().PID())
	}
	all := func(ctx context.Context, sql string) error {
		for _, conn := range listeners {
			if err := execute(ctx, conn, sql); err != nil {
				return err
			}
		}
		return nil
	}
	return load{
		begin: func(ctx context.Context) error { return all(ctx, "LISTEN something_else") },
		cycle: func(ctx context.Context) error {
			return s.meter.measure(ctx, func() (int, error) {
				for range many {
					if err := execute(ctx, t.Pool, "SELECT pg_notify($1, '')", "nobody"); err != nil {
						return 0, err
					}
					for _, pid := range pids { // so that each is woken by the next one too
						if err := awaitSleep(ctx, pid); err != nil {
							return 0, err
						}
					}
				}
				return many, nil
			}, true, share{row, pids})
		},
		end: func() { _ = all(context.WithoutCancel(ctx), "UNLISTEN *") }, // where it fails, the session ends with the run
	}
}
