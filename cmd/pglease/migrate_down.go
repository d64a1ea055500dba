package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pglease/pglease/migrations"
)

var errNotConfirmed = errors.New("nothing was changed: answer y, or pass --yes")

func (m *migrate) down() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the tables and all that is in them",
		Long: `Remove the tables of a line and all that is in them. It says what that is and
asks before. The schema goes too, if "pglease migrate up" made it and nothing
else is in it.

Fences start again from nothing in tables that are made anew: resources that
remember an old fence may then refuse new owners.`,
		Example: "  pglease migrate down --line report --yes",
		Args:    noArgs,
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		lines, err := m.lines()
		if err != nil {
			return err
		}
		slices.Reverse(lines)
		var asked versions
		if !yes {
			if asked, err = m.confirm(cmd, lines); err != nil {
				return err
			}
		}
		return m.each(cmd, lines, func(ctx context.Context, db target, line migrations.Line) error {
			if err := asked.stillThere(ctx, db, line); err != nil {
				return err
			}
			result, err := db.Down(ctx, db.pool, line)
			for _, reverted := range result.Applied {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: reverted %d %s\n", line, reverted.Version, reverted.Name)
			}
			if err == nil && len(result.Applied) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing to do: nothing is applied\n", line)
			}
			return err
		})
	}
	return cmd
}

// versions are those at which the lines stood when the person was asked; nil where nobody was.
type versions map[migrations.Line]uint

// stillThere refuses a line that was brought to another version meanwhile: nobody agreed to the loss
// of that.
func (asked versions) stillThere(ctx context.Context, db target, line migrations.Line) error {
	if asked == nil {
		return nil
	}
	state, err := db.Version(ctx, db.pool, line)
	if err == nil && state.Version != 0 && state.Version != asked[line] {
		err = fmt.Errorf("%s: it was brought from version %d to %d after the question, and is left as it is; run this again",
			line, asked[line], state.Version)
	}
	return err
}

// confirm says what would be lost and asks. Where nothing would be, it does not ask.
func (m *migrate) confirm(cmd *cobra.Command, lines []migrations.Line) (versions, error) {
	loss, asked := "", versions{}
	err := m.each(cmd, lines, func(ctx context.Context, db target, line migrations.Line) error {
		state, err := db.Version(ctx, db.pool, line)
		if err != nil || state.Version == 0 {
			return err
		}
		asked[line] = state.Version
		tables, err := m.tables(ctx, db.pool, line)
		loss += tables
		return err
	})
	if err != nil || loss == "" {
		return asked, err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "This destroys:\n%sGo on? [y/N] ", loss)
	answer := ask(cmd.Context(), cmd.InOrStdin())
	if answer == "" {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	if answer != "y" && answer != "yes" {
		return nil, errNotConfirmed
	}
	return asked, nil
}

// ask returns one line of the input, or nothing when there is none or ctx ends.
func ask(ctx context.Context, in io.Reader) string {
	answer := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted; it ends with the process
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		return line
	case <-ctx.Done():
		return ""
	}
}

// countLimit bounds the time that counting takes.
const countLimit = 100_000

// tables lists the tables of a line that are there, with the number of their rows.
func (m *migrate) tables(ctx context.Context, pool *pgxpool.Pool, line migrations.Line) (string, error) {
	all, err := migrations.All(line, m.schema)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, migration := range all {
		for _, created := range createTable.FindAllStringSubmatch(migration.Up, -1) {
			rows, err := countRows(ctx, pool, created[1])
			if err != nil {
				return "", err
			}
			if rows != "" {
				fmt.Fprintf(&b, "    %-40s %s\n", created[1], rows)
			}
		}
	}
	return b.String(), nil
}

var createTable = regexp.MustCompile(`CREATE TABLE ("(?:[^"]|"")+"\.\w+)`)

func countRows(ctx context.Context, pool *pgxpool.Pool, table string) (string, error) {
	var exists bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&exists); err != nil || !exists {
		return "", err
	}
	var n int
	query := fmt.Sprintf("SELECT count(*) FROM (SELECT FROM %s LIMIT %d) AS counted", table, countLimit+1)
	err := pool.QueryRow(ctx, query).Scan(&n)
	switch {
	case err != nil:
		return "", err
	case n > countLimit:
		return fmt.Sprintf("more than %d rows", countLimit), nil
	case n == 1:
		return "1 row", nil
	}
	return fmt.Sprintf("%d rows", n), nil
}
