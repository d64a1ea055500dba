package fence_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/pglease/fence"
)

// The rate of fenced UPDATEs, as a share of that of the same UPDATE without a fence. The variants take
// turns, so that a noisy machine is as noisy for each, and medians are compared.
func BenchmarkUpdate(b *testing.B) {
	pool, _ := setUp(b)
	for _, table := range []string{"plain", "triggered", "checked"} {
		mustExec(b, pool, fmt.Sprintf(`CREATE TABLE %[1]s (device_id text PRIMARY KEY, setting text, fence bigint, lease_id uuid) WITH (fillfactor = 70)`, table))
		mustExec(b, pool, fmt.Sprintf(`INSERT INTO %s VALUES ($1)`, table), pump)
	}
	mustExec(b, pool, `SELECT pglease.fence_table('triggered', 'device_id', 'fence', 'lease_id')`)
	by, body := token(b, 42), fmt.Sprintf("%01000d", 7)
	update := func(table string) error {
		_, err := pool.Exec(b.Context(), `UPDATE `+table+` SET setting = $1, fence = $2, lease_id = $3 WHERE device_id = $4`,
			body, by.Fence(), by.LeaseID().String(), pump)
		return err
	}
	column := fence.Column{Table: pgx.Identifier{"checked"}, Key: "device_id", Fence: "fence", Lease: "lease_id"}
	variants := []struct {
		name string
		run  func() error
	}{
		{"plain", func() error { return update("plain") }},
		{"trigger", func() error { return update("triggered") }},
		{"column", func() error {
			return column.Update(b.Context(), pool, by, fence.Change{Set: "setting = $1", Args: []any{body}})
		}},
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, v := range variants {
			start := time.Now()
			if err := v.run(); err != nil {
				b.Fatal(err)
			}
			took[v.name] = append(took[v.name], time.Since(start))
		}
	}
	median := func(name string) float64 {
		slices.Sort(took[name])
		return float64(took[name][len(took[name])/2])
	}
	for _, v := range variants[1:] {
		b.ReportMetric(median("plain")/median(v.name), v.name+"/plain")
	}
}
