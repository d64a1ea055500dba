package reportstore_test

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease/pgleasetest"
	"github.com/pglease/pglease/reportstore"
)

// BenchmarkPublish compares, write by write and in turn, a fenced publication with a plain UPDATE
// of the same body on the same table, history included, and on a bare table. It reports medians and
// their ratios: 1 is the speed of the plain UPDATE. The test server has fsync off, so what a
// statement costs weighs more than it does in service; PGLEASE_TEST_DATABASE_URL names another.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{200, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmarkPublish(b, size) })
	}
}

func benchmarkPublish(b *testing.B, size int) {
	b.Helper()
	pool := pgleasetest.Pool(b, migrations.Report)
	store := newStore(b, pool)
	body := make([]byte, size)
	if _, err := rand.Read(body); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), `CREATE TABLE bare (report_id text PRIMARY KEY, body bytea, version bigint) WITH (fillfactor = 70)`); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), `INSERT INTO bare VALUES ($1, $2, 1)`, july, body); err != nil {
		b.Fatal(err)
	}
	publish(b, store, token(b, 42), "one", 0, 1)
	fenced := func() error {
		_, err := store.Publish(b.Context(), token(b, 42), reportstore.Report{ID: july, Body: body, ExpectedVersion: reportstore.AnyVersion})
		return err
	}
	const plain = `SET body = $2, version = version + 1 WHERE report_id = $1`
	writes := []func() error{fenced, updater(b, pool, `UPDATE pglease.reports `+plain, body), updater(b, pool, `UPDATE bare `+plain, body)}
	times := make([][]time.Duration, len(writes))
	number := uint64(0)
	for b.Loop() {
		for range writes {
			number++
			binary.BigEndian.PutUint64(body, number)
			w := int(number+number/uint64(len(writes))) % len(writes) // no write always follows the same other
			began := time.Now()
			if err := writes[w](); err != nil {
				b.Fatal(err)
			}
			times[w] = append(times[w], time.Since(began))
		}
	}
	report(b, times)
}

func updater(b *testing.B, pool *pgxpool.Pool, sql string, body []byte) func() error {
	b.Helper()
	return func() error {
		_, err := pool.Exec(b.Context(), sql, july, body)
		return err
	}
}

func report(b *testing.B, times [][]time.Duration) {
	b.Helper()
	medians := make([]float64, len(times))
	for i, t := range times {
		slices.Sort(t)
		medians[i] = float64(t[len(t)/2])
	}
	b.ReportMetric(medians[0], "ns/fenced")
	b.ReportMetric(medians[1]/medians[0], "x-same-table")
	b.ReportMetric(medians[2]/medians[0], "x-bare-table")
}
