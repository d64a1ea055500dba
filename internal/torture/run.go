//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/torture/check"
	"github.com/pglease/pglease/internal/torture/mutant"
)

// Run runs legs under faults until the time is over, and checks each. It stops at the first leg with
// a violation, whose history it leaves in Options.Dir. The error is of the harness itself; what a
// checker found is in the Report.
func Run(ctx context.Context, o Options) (Report, error) {
	o = o.filled()
	report := Report{Seed: o.Seed, Faults: map[string]int{}, Calls: map[string]int{}, Planted: o.Planted.Name, Violations: []check.Violation{}}
	began := time.Now()
	s, err := o.servers(ctx)
	if err != nil {
		return report, err
	}
	report.Server = s.primary.Source()
	if len(drawable(crashes, o.Only)) > 0 {
		err = s.follow(ctx)
	}
	if err != nil {
		return report, errors.Join(err, s.Stop())
	}
	err = errors.Join(runLegs(ctx, o, s, &report), s.Stop())
	report.Duration = time.Since(began).Round(time.Millisecond).String()
	return report, err
}

func runLegs(ctx context.Context, o Options, s *Servers, report *Report) error {
	if err := plant(ctx, o, s); err != nil {
		return err
	}
	for number, left := 1, o.For; left > 0 && !over(o.Planted, report.Violations); number++ {
		length := min(o.Leg, left)
		if left-length < o.Leg/4 { // no crumb of a leg at the end
			length = left
		}
		left -= length
		h, err := runLeg(ctx, o, s, number, length)
		if err != nil {
			return fmt.Errorf("leg %d: %w", number, err)
		}
		ended := time.Now()
		result := check.All(h)
		report.add(h, result)
		if len(result.Violations) > 0 {
			report.History = filepath.Join(o.Dir, fmt.Sprintf("leg%d", number), "history.jsonl")
			if err := h.Save(report.History); err != nil {
				return err
			}
		}
		fmt.Fprintf(o.Log, "leg %d, %v, checked in %v: %s\n", number, length, time.Since(ended).Round(time.Millisecond), report.line())
	}
	return nil
}

// over tells whether there is nothing more to find: any violation is too many, and of a planted bug
// all that it is to be found by.
func over(planted mutant.Mutant, found []check.Violation) bool {
	for _, name := range planted.Finds {
		if !slices.ContainsFunc(found, func(v check.Violation) bool { return v.Checker == name }) {
			return false
		}
	}
	return len(found) > 0
}

// plant puts a bug into the databases.
func plant(ctx context.Context, o Options, s *Servers) error {
	for url, sql := range map[string]string{s.authorityURL(): o.Planted.Plant(), s.resourceURL(): o.Planted.Resource} {
		if sql == "" {
			continue
		}
		err := onServer(ctx, url, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, sql)
			return err
		})
		if err != nil {
			return fmt.Errorf("plant %s: %w", o.Planted.Name, err)
		}
	}
	return nil
}
