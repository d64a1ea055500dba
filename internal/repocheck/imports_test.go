package repocheck_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Who imports one of these packages compiles exactly these modules beside the standard library.
// A new line here reaches every user: it needs a reason.
func TestConsumerCompilesOnlyStdAndPgx(t *testing.T) {
	t.Parallel()
	const own = "github.com/pglease/pglease"
	pgx := []string{
		"github.com/jackc/pgpassfile",
		"github.com/jackc/pgservicefile",
		"github.com/jackc/pgx/v5",
		"golang.org/x/text",
	}
	pool := slices.Concat(pgx, []string{"github.com/jackc/puddle/v2", "golang.org/x/sync"})

	for _, c := range []struct {
		pkg  string
		want []string
	}{
		{own + "/pglease", pool},
		{own + "/reportstore", pool},
		{own + "/pglease/jobs", pool},
	} {
		t.Run(c.pkg, func(t *testing.T) {
			t.Parallel()
			got := modules(t, c.pkg)
			want := slices.Sorted(slices.Values(append(slices.Clone(c.want), own)))
			if !slices.Equal(got, want) {
				t.Errorf("compiles the modules\n\t%s\nwant\n\t%s",
					strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		})
	}
}

// modules lists the modules of all packages that pkg needs, itself included.
func modules(t *testing.T, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pkg)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v\n%s", pkg, err, &stderr)
	}
	found := strings.Fields(string(out))
	slices.Sort(found)
	return slices.Compact(found)
}
