// Package mutant holds bugs that are planted into a run of the torture harness, to show that each
// checker finds what it is for. A bug is put into statements on their way to the database, into the
// database's own views and triggers, or into the worker; the library itself is not touched.
package mutant

import (
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
