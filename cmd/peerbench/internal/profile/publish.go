package profile

import (
	"context"
	"crypto/rand"
	"encoding/binary"

	"github.com/pglease/pglease/cmd/peerbench/internal/peers"
	"github.com/pglease/pglease/reportstore"
)

const (
	bodySize   = 1_000
	createBare = `CREATE TABLE bare_report (report_id text COLLATE "C" PRIMARY KEY, body bytea NOT NULL, version bigint NOT NULL) WITH (fillfactor = 70)`
	insertBare = `INSERT INTO bare_report VALUES ($1, $2, 1)`
	setBody    = ` SET body = $2, version = version + 1 WHERE report_id = $1`
)

// publish compares with a plain UPDATE of the same table, whose triggers keep every version of that too, and with
// one of a table that has none.
func (s *stage) publish(ctx context.Context) ([]load, error) {
	t, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := s.hold(ctx, t, "publish")
	if err != nil {
		return nil, err
	}
	store, err := reportstore.New(t.Pool, reportstore.Config{Schema: peers.HistorySchema})
	if err != nil {
		return nil, err
	}
	body, n := make([]byte, bodySize), uint64(0)
	_, _ = rand.Read(body)  // never fails, see crypto/rand
	next := func() []byte { // the same one again would not be written
		n++
		binary.BigEndian.PutUint64(body, n)
		return body
	}
	publication := func(i int) error {
		_, err := store.Publish(ctx, leases[i].Token(), reportstore.Report{
			ID: key("publish", i), Body: next(), ExpectedVersion: reportstore.AnyVersion,
		})
		return err
	}
	if _, err := t.Exec(ctx, createBare); err != nil {
		return nil, err
	}
	for i := range many {
		if err := publication(i); err != nil {
			return nil, err
		}
		if err := execute(ctx, t.Pool, insertBare, key("publish", i), next()); err != nil {
			return nil, err
		}
	}
	plain := func(table string) func(int) error {
		return func(i int) error { return execute(ctx, t.Pool, "UPDATE "+table+setBody, key("publish", i), next()) }
	}
	return []load{s.each(ctx, t, "publish", []step{
		{"publish", "Publish of a kilobyte, its versions kept", publication},
		{"reports", "plain UPDATE of the same table, its versions kept too", plain(peers.HistorySchema + ".reports")},
		{"bare-report", "plain UPDATE of a table that keeps nothing", plain("bare_report")},
	})}, nil
}
