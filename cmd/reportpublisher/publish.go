package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pglease/pglease/cmd/reportpublisher/internal/sales"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

const publishHelp = `publish reads CSV files of sales, adds up the month by store and by sku, and
publishes the result as CSV. The report's name ends in its month.

Each file is UTF-8 and begins with the header

  store,date,sku,quantity,unit_price

  store, sku   1 to 100 bytes; blanks around them are dropped
  date         YYYY-MM-DD, in the report's month
  quantity     up to 9 digits and 3 decimals; negative for a return
  unit_price   up to 9 digits and 4 decimals, not negative

A byte order mark, CRLF line ends, quoted fields and empty lines are read.
Everything else is refused with file, line and reason, and nothing is published:
a wrong or missing header, another month's rows, decimal commas, exponents, a
file given twice or copied under another name, a month without sales. A file is
at most 64 MiB, all together have at most 1,000,000 rows. "-" is the standard
input.

The report has the columns month, by, name, quantity, amount: a line a store, a
line a sku, sorted by name, and the total. No figure is rounded; all amounts
have as many decimals as the finest of them needs, at least two. The same sales
make the same bytes.

The files are read before the lease is asked for: what is refused then has
waited for nobody and written nothing. They are read again after the lease was
granted, so that a publisher that waited does not publish what it read before
its predecessor; only pipes and the standard input are read once.`

// A publication is one call of publish.
type publication struct {
	database
	report string
	owner  string
	ttl    time.Duration
	wait   time.Duration
	dryRun bool
	out    io.Writer

	month  sales.Month
	inputs []sales.Input
	sent   bool // the report went to the store
	done   bool // the store accepted it
}

func newPublish() *cobra.Command {
	var p publication
	c := &cobra.Command{
		Use:     "publish --report NAME FILE...",
		Short:   "Add up a month's sales and publish the report",
		Long:    publishHelp,
		Example: "  reportpublisher publish --report report/2026-07 sales/*.csv",
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			p.out = c.OutOrStdout()
			if err := p.check(); err != nil {
				return usageError{err}
			}
			var err error
			if p.inputs, err = sales.FromPaths(args, c.InOrStdin()); err != nil {
				return malformed(err)
			}
			return p.run(c.Context())
		},
	}
	reportFlag(c, &p.report)
	p.flags(c)
	c.Flags().StringVar(&p.owner, "owner", "", "how others see this publisher (default host and process id)")
	c.Flags().DurationVar(&p.ttl, "ttl", pglease.DefaultTTL, "how long the lease lives without renewal")
	c.Flags().DurationVar(&p.wait, "wait", time.Minute, "how long to wait for the lease")
	c.Flags().BoolVar(&p.dryRun, "dry-run", false, "print the report and publish nothing; needs no database")
	return c
}

// check looks at what the call asks for.
func (p *publication) check() (err error) {
	if p.month, err = sales.MonthOf(p.report); err != nil {
		return err
	}
	if err := fence.CheckResource(p.report); err != nil {
		return err
	}
	if p.wait <= 0 {
		return errors.New("--wait is not positive")
	}
	if !p.dryRun {
		_, err = p.config()
	}
	return err
}

// run publishes, or with --dry-run prints. The first computation is the dry run of the second, which
// happens under the lease: sales that are refused already now are worth no lease.
func (p *publication) run(ctx context.Context) error {
	body, err := p.compute(ctx)
	if err != nil {
		return err
	}
	if p.dryRun {
		_, err = p.out.Write(body)
		return err
	}
	if p.owner == "" {
		p.owner = defaultOwner()
	}
	return p.withStore(ctx, p.owner, func(pool *pgxpool.Pool, store *reportstore.Store) error {
		client, err := pglease.New(ctx, pool, pglease.Config{Owner: p.owner, Schema: p.schema, TTL: p.ttl})
		if errors.Is(err, pglease.ErrInvalidConfig) {
			err = usageError{err}
		}
		if err != nil {
			return err
		}
		err = p.underLease(ctx, client, func(ctx context.Context, lease *pglease.Lease) error {
			return p.publish(ctx, lease.Token(), store)
		})
		return errors.Join(err, client.Close(context.WithoutCancel(ctx)))
	})
}

// defaultOwner is the same name for the lease and for the report.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// underLease calls work as Do does, but waits for the lease no longer than --wait.
func (p *publication) underLease(ctx context.Context, client *pglease.Client, work func(context.Context, *pglease.Lease) error) error {
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	timer := time.AfterFunc(p.wait, giveUp)
	inTime := false
	var worked error
	err := client.Do(waiting, p.report, func(ctx context.Context, lease *pglease.Lease) error {
		if inTime = timer.Stop(); !inTime {
			return context.Canceled
		}
		worked = work(ctx, lease)
		return worked
	})
	switch {
	case inTime:
		return p.outcome(worked, err)
	case waiting.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("waited %v for the lease: %w", p.wait, err)
	}
	return err
}

// outcome says what the end of the work means for the report: worked is the work's error, and err
// that of Do, which tells of a lost lease too.
func (p *publication) outcome(worked, err error) error {
	var lost *pglease.LostError
	var refused refusalError
	switch {
	case !errors.As(err, &lost):
		return err
	case p.done:
		return worked // the store has accepted the report; what became of the lease later does not matter
	case errors.As(worked, &refused):
		return worked
	case p.sent:
		return fmt.Errorf("%s: %w\nIt is not known whether the report was published: this publisher lost its lease meanwhile; look at its history", p.report, lost)
	}
	return fmt.Errorf("%s: %w\nNothing was published: this publisher lost its lease", p.report, lost)
}

// publish is the work under the lease. Establish comes before the first look at the report: from
// then on no earlier owner can change it.
func (p *publication) publish(ctx context.Context, token fence.Token, store *reportstore.Store) error {
	if err := store.Establish(ctx, token, p.report); err != nil {
		return p.refusal(err)
	}
	now, err := store.Read(ctx, p.report)
	if err != nil && !errors.Is(err, reportstore.ErrNotFound) {
		return err
	}
	body, err := p.compute(ctx)
	if err != nil {
		return err
	}
	p.sent = true
	published, err := store.Publish(ctx, token, reportstore.Report{ID: p.report, Body: body, ExpectedVersion: now.Version})
	if err != nil {
		return p.refusal(err)
	}
	p.done = true
	fmt.Fprintf(p.out, "published %s version %d under fence %d\n", p.report, published.Version, token.Fence())
	return nil
}

func (p *publication) compute(ctx context.Context) ([]byte, error) {
	sum, err := sales.Read(ctx, p.month, p.inputs, sales.Limits{})
	if err != nil {
		return nil, malformed(err)
	}
	return sum.CSV()
}

// A refusalError says in its last line that nothing was published, and why.
type refusalError struct{ err error }

func (e refusalError) Error() string { return e.err.Error() }
func (e refusalError) Unwrap() error { return e.err }

func refusef(format string, args ...any) error { return refusalError{fmt.Errorf(format, args...)} }

// malformed says after the problems, one a line, what follows from them.
func malformed(err error) error {
	var problems sales.InputError
	if !errors.As(err, &problems) {
		return err
	}
	if problems.Full() {
		return refusef("the sales cannot be read:\n%w\nThere may be more. Nothing was published", problems)
	}
	return refusef("the sales cannot be read:\n%w\nNothing was published", problems)
}

// refusal says what the store's answer means for the person who called publish.
func (p *publication) refusal(err error) error {
	switch {
	case errors.Is(err, fence.ErrStaleOwner):
		return refusef("%w\nNothing was published: this publisher lost its lease and another has taken over", err)
	case errors.Is(err, reportstore.ErrConflict):
		return refusef("%w\nNothing was published: the report changed meanwhile; look at it and run publish again", err)
	}
	return err
}
