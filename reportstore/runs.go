package reportstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore/internal/reportdb"
)

// Limits on what describes a run, in bytes.
const (
	MaxPeriodLength = 64
	MaxWorkerLength = 512
)

// RunStatus is where a run is.
type RunStatus string

// The statuses of a run.
const (
	RunStarted   RunStatus = "started"   // it was asked for and is not over
	RunPublished RunStatus = "published" // its version is in the store
)

// A Run is the one logical run of a report for a period. A unique key says that it is one, so it
// needs no lease, survives every retry of the work, and lasts for ever.
type Run struct {
	Report string
	Period string
	Number int // 1, and one more each time it was begun again on purpose
	Status RunStatus

	// Worker is what works on it, as in job/reports/7: for the caller, and never used to decide.
	Worker string

	StartedAt   time.Time
	PublishedAt time.Time // zero while the run is not over
	Version     int64     // of the report, that ended the run; 0 while it is not over
	Fence       int64     // of the worker that ended it last; 0 where nobody has
}

// StartRun asks for the run of a report for a period:
//
//	INSERT INTO report_runs (report_id, period) VALUES ('sales', '2026-07') ON CONFLICT DO NOTHING
//
// Of any number of callers, now or in a year, one starts it, and is told so; the others get the run
// as it is. The error matches fence.ErrInvalidResource or ErrInvalidRun where nothing was sent.
// After any other error the run may have been started or not; the same call again finds out that
// it was, though not by whom, unless worker names the caller.
func (s *Store) StartRun(ctx context.Context, reportID, period, worker string) (Run, bool, error) {
	var run Run
	var started bool
	err := checkRun(reportID, period, worker)
	if err == nil {
		err = s.alone(ctx, func(db reportdb.DBTX) (err error) {
			run, started, err = s.startRun(ctx, db, reportID, period, worker)
			return err
		})
	}
	return s.runAnswer("start run", reportID, run, started, err)
}

// StartRunTx is StartRun within the caller's transaction: the run has started when that commits,
// together with the job that is to do it. Another who asks for the same run waits until then.
func (s *Store) StartRunTx(ctx context.Context, tx pgx.Tx, reportID, period, worker string) (Run, bool, error) {
	var run Run
	var started bool
	err := checkRun(reportID, period, worker)
	if err == nil {
		run, started, err = s.startRun(ctx, s.schema.On(tx), reportID, period, worker)
	}
	return s.runAnswer("start run", reportID, run, started, err)
}

func (s *Store) startRun(ctx context.Context, db reportdb.DBTX, reportID, period, worker string) (Run, bool, error) {
	row, err := s.queries.StartRun(ctx, db, reportdb.StartRunParams{ReportID: reportID, Period: period, Worker: worker})
	if err == nil {
		return asRun(reportID, period, reportdb.RunRow(row)), true, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return Run{}, false, err
	}
	run, err := s.run(ctx, db, reportID, period)
	if errors.Is(err, ErrNotFound) {
		err = errRivals
	}
	return run, false, err
}

// RestartRunTx begins a run again, as its next number, if it is still as the caller saw it: after
// a correction of what it was made from, or where what worked on it was given up. Whoever works on
// the number before can end it no more. The error matches ErrConflict where somebody was faster.
func (s *Store) RestartRunTx(ctx context.Context, tx pgx.Tx, seen Run, worker string) (Run, error) {
	err := checkRun(seen.Report, seen.Period, worker)
	var run Run
	if err == nil {
		var row reportdb.RestartRunRow
		row, err = s.queries.RestartRun(ctx, s.schema.On(tx), reportdb.RestartRunParams{
			ReportID: seen.Report, Period: seen.Period, Run: int32(seen.Number), Status: string(seen.Status), Worker: worker,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = fmt.Errorf("%w: run %d is not %s any more", ErrConflict, seen.Number, seen.Status)
		}
		run = asRun(seen.Report, seen.Period, reportdb.RunRow(row))
	}
	run, _, err = s.runAnswer("restart run", seen.Report, run, true, err)
	return run, err
}

// FinishRun ends a run with a version that was published under the token, which is one of the
// report's. It may be repeated: where the run has ended already, under this fence or an older one,
// the answer is that end. The error matches
//
//   - fence.ErrStaleOwner where a newer fence has ended it: the caller was succeeded;
//   - ErrConflict where the run was begun again since, and ErrNotFound where there is none;
//   - what Publish says of invalid arguments, and ErrInvalidRun: nothing was sent.
func (s *Store) FinishRun(ctx context.Context, token fence.Token, reportID, period string, number int, version int64) (Run, error) {
	err := errors.Join(check(token, reportID), checkRun(reportID, period, ""))
	if err == nil && (version < 1 || number < 1) {
		err = fmt.Errorf("%w: run %d with version %d", ErrInvalidRun, number, version)
	}
	var run Run
	if err == nil {
		err = s.alone(ctx, func(db reportdb.DBTX) (err error) {
			run, err = s.finishRun(ctx, db, token, reportID, period, number, version)
			return err
		})
	}
	run, _, err = s.runAnswer("finish run", reportID, run, true, err)
	return run, err
}

func (s *Store) finishRun(ctx context.Context, db reportdb.DBTX, token fence.Token, reportID, period string, number int, version int64) (Run, error) {
	row, err := s.queries.FinishRun(ctx, db, reportdb.FinishRunParams{
		ReportID: reportID, Period: period, Run: int32(number), Fence: token.Fence(), Version: version,
	})
	if err == nil {
		return asRun(reportID, period, reportdb.RunRow(row)), nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return Run{}, err
	}
	// A statement of its own: it sees what the UPDATE, which may have waited, met.
	run, err := s.run(ctx, db, reportID, period)
	switch {
	case err != nil:
		return Run{}, err
	case run.Fence > token.Fence():
		return Run{}, fmt.Errorf("%w: fence %d is older than %d, which has ended run %d", fence.ErrStaleOwner, token.Fence(), run.Fence, run.Number)
	case run.Number != number:
		return Run{}, fmt.Errorf("%w: run %d was begun again as %d", ErrConflict, number, run.Number)
	case run.Status != RunPublished:
		return Run{}, errRivals
	}
	return run, nil
}

// Run returns the run of a report for a period. The error matches ErrNotFound where there is none.
func (s *Store) Run(ctx context.Context, reportID, period string) (Run, error) {
	err := checkRun(reportID, period, "")
	var run Run
	if err == nil {
		run, err = s.run(ctx, s.schema.On(s.pool), reportID, period)
	}
	run, _, err = s.runAnswer("read run", reportID, run, true, err)
	return run, err
}

func (s *Store) run(ctx context.Context, db reportdb.DBTX, reportID, period string) (Run, error) {
	row, err := s.queries.Run(ctx, db, reportdb.RunParams{ReportID: reportID, Period: period})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return asRun(reportID, period, row), err
}

// CheckSchema returns nil if the database has the tables that this library needs. Otherwise the
// error matches ErrSchema and names the command that makes them.
func (s *Store) CheckSchema(ctx context.Context) error {
	_, err := s.queries.Run(ctx, s.schema.On(s.pool), reportdb.RunParams{})
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return s.wrap("check schema", "", err)
}

func (s *Store) runAnswer(op, reportID string, run Run, started bool, err error) (Run, bool, error) {
	if err != nil {
		return Run{}, false, s.wrap(op, reportID, err)
	}
	return run, started, nil
}

func asRun(reportID, period string, row reportdb.RunRow) Run {
	run := Run{
		Report: reportID, Period: period, Number: int(row.Run), Status: RunStatus(row.Status), Worker: row.Worker,
		StartedAt: row.StartedAt, Version: row.Version, Fence: row.GreatestFence,
	}
	if row.PublishedAt != nil {
		run.PublishedAt = *row.PublishedAt
	}
	return run
}

func checkRun(reportID, period, worker string) error {
	if period == "" {
		return fmt.Errorf("%w: the period is empty", ErrInvalidRun)
	}
	return errors.Join(fence.CheckResource(reportID), checkRunText("period", period, MaxPeriodLength), checkRunText("worker", worker, MaxWorkerLength))
}

func checkRunText(what, text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("%w: the %s has %d bytes, the limit is %d", ErrInvalidRun, what, len(text), limit)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return fmt.Errorf("%w: the %s %q is not valid UTF-8 without NUL", ErrInvalidRun, what, text)
	}
	return nil
}
