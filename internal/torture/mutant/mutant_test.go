package mutant_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pglease/pglease/internal/torture/mutant"
)

var statement = regexp.MustCompile("(?s)= `(-- name: (\\w+) .*?)`")

// TestEveryBugChangesItsStatements: a bug whose text no longer occurs would be planted nowhere.
func TestEveryBugChangesItsStatements(t *testing.T) {
	t.Parallel()
	statements := map[string][]string{} // by name: the lines of migrations share some
	for _, pattern := range []string{"../../../pglease/internal/*/*.sql.go", "../../../pglease/fence/internal/*/*.sql.go", "../../../reportstore/internal/*/*.sql.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range statement.FindAllStringSubmatch(string(text), -1) {
				statements[m[2]] = append(statements[m[2]], m[1])
			}
		}
	}
	for _, m := range mutant.All {
		for _, name := range m.Statements {
			if len(statements[name]) == 0 {
				t.Errorf("%s: there is no statement %s", m.Name, name)
			}
			changes := func(sql string) bool { return m.Rewrite(sql) != sql }
			if !slices.ContainsFunc(statements[name], changes) {
				t.Errorf("%s changes nothing in %s", m.Name, name)
			}
		}
		if len(m.Pass)%2 != 0 {
			t.Errorf("%s: the texts for lease_pass are not in pairs", m.Name)
		}
	}
	pass, err := os.ReadFile("../../../migrations/lease/000002_waiting.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutant.All {
		for i := 0; i < len(m.Pass); i += 2 {
			if !strings.Contains(string(pass), strings.ReplaceAll(m.Pass[i], "pglease.", "/*schema.*/")) {
				t.Errorf("%s: lease_pass has no %q", m.Name, m.Pass[i])
			}
		}
	}
}
