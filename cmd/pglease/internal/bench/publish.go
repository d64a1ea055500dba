package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

var publish = Work{
	Name:    "publish",
	Summary: "replace a report of one's own, of 1,000 bytes, under its fence",
	unit:    "fenced publication",
	limit:   "plain UPDATE of the same table",
	prepare: preparePublish,
}

const (
	bodySize   = 1_000
	createBare = `CREATE TABLE %s.bench_report (report_id text COLLATE "C" PRIMARY KEY, body bytea NOT NULL, version bigint NOT NULL) WITH (fillfactor = 70)`
	insertBare = `INSERT INTO %s.bench_report VALUES ($1, $2, 1)`
	setBody    = ` SET body = $2, version = version + 1 WHERE report_id = $1`
)

// preparePublish compares with the same table, whose triggers check and keep every version of a plain
// UPDATE too, and with a table that has none.
func preparePublish(ctx context.Context, s *stage) (loads, error) {
	pool, err := s.pool(ctx, s.options.Clients, nil)
	if err != nil {
		return loads{}, err
	}
	store, err := reportstore.New(pool, reportstore.Config{Schema: s.schema})
	if err != nil {
		return loads{}, err
	}
	reports, err := s.reports(ctx)
	if err != nil {
		return loads{}, err
	}
	ours := closed(len(reports), func(ctx context.Context, worker int) error {
		return reports[worker].publish(ctx, store)
	})
	if err := s.firstVersions(ctx, store, reports); err != nil {
		return loads{}, err
	}
	conns, err := s.connections(ctx, len(reports))
	plain := func(table string) load {
		sql := s.sql("UPDATE %s." + table + setBody)
		return load{run: closed(len(reports), func(ctx context.Context, worker int) error {
			r := reports[worker]
			_, err := conns[worker].Exec(ctx, sql, r.token.Resource(), r.next())
			return err
		})}
	}
	return loads{
		ours: load{run: ours}, limit: plain("reports"),
		also: plain("bench_report"), alsoName: "plain UPDATE of a bare table",
	}, err
}

// A report is one worker's own.
type report struct {
	token fence.Token
	body  []byte
	n     uint64
}

func (s *stage) reports(ctx context.Context) ([]*report, error) {
	leases, err := s.leases(ctx)
	if err != nil {
		return nil, err
	}
	reports := make([]*report, len(leases))
	for i, lease := range leases {
		reports[i] = &report{token: lease.Token(), body: make([]byte, bodySize)}
		_, _ = rand.Read(reports[i].body) // never fails, see crypto/rand
	}
	return reports, nil
}

func (s *stage) firstVersions(ctx context.Context, store *reportstore.Store, reports []*report) error {
	if err := s.execute(ctx, createBare); err != nil {
		return err
	}
	for _, r := range reports {
		if err := r.publish(ctx, store); err != nil {
			return err
		}
		if err := s.execute(ctx, insertBare, r.token.Resource(), r.body); err != nil {
			return err
		}
	}
	return nil
}

// next returns a body that was not there before: the same one again would not be written.
func (r *report) next() []byte {
	r.n++
	binary.BigEndian.PutUint64(r.body, r.n)
	return r.body
}

func (r *report) publish(ctx context.Context, store *reportstore.Store) error {
	_, err := store.Publish(ctx, r.token, reportstore.Report{
		ID: r.token.Resource(), Body: r.next(), ExpectedVersion: reportstore.AnyVersion,
	})
	return err
}
