// Package catalogue writes down what a schema consists of, so that two states of it can be
// compared as text.
package catalogue

import (
	"context"
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed catalogue.sql
var query string

// Dump returns one entry for each object of a schema: tables with their options, columns,
// constraints, indexes, triggers, rules, policies, functions with their source, views, sequences,
// types, privileges and comments. The schema itself is an entry; where there is none, the text is
// empty. Names of relations that begin with one of the prefixes in without are left out.
func Dump(ctx context.Context, pool *pgxpool.Pool, schema string, without ...string) (string, error) {
	rows, err := pool.Query(ctx, query, schema)
	if err != nil {
		return "", err
	}
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range entries {
		if !e.outside(without) {
			b.WriteString(e.Text + "\n")
		}
	}
	return b.String(), nil
}

type entry struct {
	Relation, Text string
}

func (e entry) outside(prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(e.Relation, prefix) {
			return true
		}
	}
	return false
}

// Differences returns the lines that only one of two dumps has, each behind a sign.
func Differences(before, after string) string {
	var b strings.Builder
	only(&b, "- ", before, after)
	only(&b, "+ ", after, before)
	return b.String()
}

func only(b *strings.Builder, sign, in, notIn string) {
	there := map[string]bool{}
	for line := range strings.Lines(notIn) {
		there[line] = true
	}
	for line := range strings.Lines(in) {
		if !there[line] {
			b.WriteString(sign + line)
		}
	}
}
