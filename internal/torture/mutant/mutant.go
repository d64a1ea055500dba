// Package mutant holds bugs that are planted into a run of the torture harness, to show that each
// checker finds what it is for. A bug is put into statements on their way to the database, into the
// database's own views and triggers, or into the worker; the library itself is not touched.
package mutant

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Mutant is one bug. The zero Mutant is none.
type Mutant struct {
	Name  string
	Tells string   // what is wrong with it, for people
	Finds []string // the checkers that must find it

	Statements []string // names of the statements to change
	From, To   string   // in these, each From becomes To
	Instead    string   // or they become this altogether
	Pass       []string // pairs: in the database's function lease_pass, the first becomes the second

	Authority string // SQL to run at the authority before the first leg
	Resource  string // SQL to run at the resource
	Worker    string // a bug of the worker's

	Only      []string      // the kinds of faults that bring it to light
	Stores    []string      // the kinds of resources that bring it to light; none for all
	TTL       time.Duration // that brings it to light; 0 for the usual
	Resources int           // how many there are to share; 0 for as many as usual
}

var named = regexp.MustCompile(`^-- name: (\w+) `)

// Rewrite puts the bug into a statement that is on its way.
func (m Mutant) Rewrite(sql string) string {
	if len(m.Statements) == 0 {
		return sql
	}
	name := named.FindStringSubmatch(sql)
	if name == nil || !slices.Contains(m.Statements, name[1]) {
		return sql
	}
	if m.Instead != "" {
		return m.Instead
	}
	return strings.ReplaceAll(strings.ReplaceAll(sql, "pg_catalog.", ""), m.From, m.To)
}

// Plant returns the SQL that puts the bug into the authority. It fails where there is nothing to change.
func (m Mutant) Plant() string {
	if len(m.Pass) == 0 {
		return m.Authority
	}
	var b strings.Builder
	b.WriteString("DO $plant$ DECLARE f text := replace(pg_get_functiondef('pglease.lease_pass'::regproc), 'pg_catalog.', ''); BEGIN\n")
	for i := 0; i+1 < len(m.Pass); i += 2 {
		from, to := literal(m.Pass[i]), literal(m.Pass[i+1])
		fmt.Fprintf(&b, "ASSERT position(%s IN f) > 0, 'nothing to change in lease_pass';\nf := replace(f, %s, %s);\n", from, from, to)
	}
	b.WriteString("EXECUTE f;\nEND $plant$;\n" + m.Authority)
	return b.String()
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Find returns the bug of that name; the empty name is none.
func Find(name string) (Mutant, bool) {
	if name == "" {
		return Mutant{}, true
	}
	for _, m := range All {
		if m.Name == name {
			return m, true
		}
	}
	return Mutant{}, false
}
