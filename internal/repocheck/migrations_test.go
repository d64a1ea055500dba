package repocheck_test

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each line of migrations is numbered 1, 2, 3, ... without a gap, and every step has its way back.
func TestMigrationsComeInPairs(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^(\d{6}_[a-z0-9_]+)\.(up|down)\.sql$`)
	steps := map[string]map[string][]string{"up": {}, "down": {}} // direction -> line -> steps
	for _, f := range files(t, isMigration) {
		line, base := path.Split(f.path)
		m := name.FindStringSubmatch(base)
		if m == nil {
			t.Errorf("%s is not named like 000001_what_it_does.up.sql", f.path)
			continue
		}
		steps[m[2]][line] = append(steps[m[2]][line], m[1])
	}
	for line, ups := range steps["up"] {
		slices.Sort(ups)
		downs := steps["down"][line]
		slices.Sort(downs)
		if !slices.Equal(ups, downs) {
			t.Errorf("%s: steps up %v, steps down %v", line, ups, downs)
		}
		for i, step := range ups {
			if want := fmt.Sprintf("%06d_", i+1); !strings.HasPrefix(step, want) {
				t.Errorf("%s: step %d is named %s", line, i+1, step)
			}
		}
	}
	for line := range steps["down"] {
		if steps["up"][line] == nil {
			t.Errorf("%s: steps down, and none up", line)
		}
	}
}

func isMigration(rel string) bool {
	return strings.HasPrefix(rel, "migrations/") && strings.HasSuffix(rel, ".sql")
}
