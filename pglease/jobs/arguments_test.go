package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/jobs"
)

// nowhere is a client whose every statement fails: what passes the checks is seen to.
func nowhere(t *testing.T) bench {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return setUpOn(t, pool)
}

func TestJobsAreCheckedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	b := nowhere(t)
	deep := strings.Repeat("[", jobs.MaxPayloadDepth+1) + strings.Repeat("]", jobs.MaxPayloadDepth+1)
	for name, job := range map[string]jobs.Job{
		"no queue":                 {},
		"long queue":               {Queue: strings.Repeat("q", jobs.MaxQueueLength+1)},
		"queue with NUL":           {Queue: "a\x00b"},
		"queue not UTF-8":          {Queue: "a\xff"},
		"queue with slash":         {Queue: "a/b"},
		"payload too large":        {Queue: queue, Payload: []byte(`"` + strings.Repeat("x", jobs.MaxPayloadSize) + `"`)},
		"payload no JSON":          {Queue: queue, Payload: []byte(`{`)},
		"empty payload":            {Queue: queue, Payload: []byte{}},
		"payload with NUL":         {Queue: queue, Payload: []byte("\"a\x00\"")},
		"payload with escaped NUL": {Queue: queue, Payload: []byte(`{"a":["\\\u0000"]}`)},
		"payload not UTF-8":        {Queue: queue, Payload: []byte("\"\xff\"")},
		"half a pair":              {Queue: queue, Payload: []byte(`"\ud83d"`)},
		"two first halves":         {Queue: queue, Payload: []byte(`"\ud83d\ud83d"`)},
		"second half alone":        {Queue: queue, Payload: []byte(`"\udcc8 "`)},
		"payload too deep":         {Queue: queue, Payload: []byte(deep)},
		"priority above":           {Queue: queue, Priority: 3},
		"priority below":           {Queue: queue, Priority: -3},
		"negative delay":           {Queue: queue, Delay: -1},
		"long delay":               {Queue: queue, Delay: jobs.MaxDelay + 1},
		"both times":               {Queue: queue, Delay: 1, RunAt: time.Now()},
		"late":                     {Queue: queue, RunAt: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"negative attempts":        {Queue: queue, MaxAttempts: -1},
		"long partition key":       {Queue: queue, Partition: strings.Repeat("p", jobs.MaxKeyLength+1)},
		"partition key with NUL":   {Queue: queue, Partition: "a\x00"},
		"long unique key":          {Queue: queue, Unique: jobs.Unique{Key: strings.Repeat("u", jobs.MaxKeyLength+1)}},
		"unique key not UTF-8":     {Queue: queue, Unique: jobs.Unique{Key: "\xff"}},
		"unique without key":       {Queue: queue, Unique: jobs.Unique{For: time.Hour}},
		"negative time of key":     {Queue: queue, Unique: jobs.Unique{Key: "a", For: -1}},
		"two lives of a key":       {Queue: queue, Unique: jobs.Unique{Key: "a", For: 1, WhileWaiting: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var typed *jobs.Error
			if _, err := b.Enqueue(t.Context(), job); !errors.Is(err, jobs.ErrInvalidJob) || !errors.As(err, &typed) || typed.Op != "enqueue" {
				t.Errorf("got %v", err)
			}
			if _, err := b.EnqueueTx(t.Context(), nil, jobs.Job{Queue: queue}, job); !errors.Is(err, jobs.ErrInvalidJob) {
				t.Errorf("in a transaction: %v", err)
			}
		})
	}
	if _, err := b.Enqueue(t.Context(), make([]jobs.Job, jobs.MaxBatch+1)...); !errors.Is(err, jobs.ErrInvalidJob) {
		t.Errorf("too many: %v", err)
	}
	if _, err := b.Enqueue(t.Context(), jobs.Job{Queue: queue}); err == nil || errors.Is(err, jobs.ErrInvalidJob) {
		t.Errorf("a good job: %v", err)
	}
}

func TestStepsAreCheckedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	b := nowhere(t)
	payload := bytes.Repeat([]byte("1"), jobs.MaxPayloadSize)
	large := slices.Repeat([]jobs.Job{{Queue: queue, Payload: payload}}, jobs.MaxCallSize/jobs.MaxPayloadSize+1)
	claim := &jobs.Claim{ID: 7}
	fail := func(f jobs.Failure) error {
		_, err := b.Fail(t.Context(), claim, f)
		return err
	}
	second := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"claim no queue":    second(b.Claim(t.Context(), "", 1)),
		"claim none":        second(b.Claim(t.Context(), queue, 0)),
		"claim too many":    second(b.Claim(t.Context(), queue, jobs.MaxBatch+1)),
		"reason with NUL":   fail(jobs.Failure{Reason: "a\x00"}),
		"reason not UTF-8":  fail(jobs.Failure{Reason: "a\xff"}),
		"long reason":       fail(jobs.Failure{Reason: strings.Repeat("x", jobs.MaxErrorLength+1)}),
		"negative delay":    fail(jobs.Failure{Delay: -2}),
		"long delay":        fail(jobs.Failure{Delay: jobs.MaxDelay + 1}),
		"snooze for none":   b.Snooze(t.Context(), claim, 0),
		"snooze for ever":   b.Snooze(t.Context(), claim, jobs.MaxDelay+1),
		"complete nil":      b.Complete(t.Context(), nil...),
		"complete too many": b.Complete(t.Context(), make([]*jobs.Claim, jobs.MaxBatch+1)...),
		"complete a nil":    b.CompleteTx(t.Context(), nil, claim, nil),
		"extend a nil":      b.Extend(t.Context(), nil, claim),
		"return a nil":      b.Return(t.Context(), nil, claim),
		"claim on none":     second(b.CompleteAndClaim(t.Context(), claim, 0)),
		"claim on too many": second(b.CompleteAndClaim(t.Context(), claim, jobs.MaxBatch+1)),
		"claim on a nil":    second(b.CompleteAndClaim(t.Context(), nil, 1)),
		"fail a nil":        second(b.Fail(t.Context(), nil, jobs.Failure{})),
		"snooze a nil":      b.Snooze(t.Context(), nil, time.Second),
		"prune the future":  second(b.Prune(t.Context(), -1)),
		"forget the future": second(b.PruneOnce(t.Context(), -1)),
		"enqueue too large": second(b.Enqueue(t.Context(), large...)),
		"list no queue":     second(b.Parked(t.Context(), "a\x00", 0, 1)),
		"list none":         second(b.Parked(t.Context(), queue, 0, 0)),
		"count no queue":    second(b.Count(t.Context(), "")),
		"ring no queue":     b.Ring(t.Context(), ""),
		"retry too many":    b.Retry(t.Context(), make([]int64, jobs.MaxBatch+1)...),
		"drop too many":     b.Drop(t.Context(), make([]int64, jobs.MaxBatch+1)...),
	} {
		if name == "complete nil" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, jobs.ErrInvalidJob) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysAndMessagesAreCheckedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	b := nowhere(t)
	for _, key := range []string{"", strings.Repeat("k", jobs.MaxOnceKeyLength+1), "a\x00", "\xff"} {
		_, _, err := jobs.Once(t.Context(), nil, key, func(context.Context, pgx.Tx) (int, error) { return 0, nil })
		if !errors.Is(err, jobs.ErrInvalidKey) {
			t.Errorf("key %q: %v", key, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("o", fence.MaxResourceLength+1), "a\x00", "\xff"} {
		if _, err := b.Outbox(name); !errors.Is(err, fence.ErrInvalidResource) {
			t.Errorf("outbox %q: %v", name, err)
		}
	}
	outbox, err := b.Outbox("outbox/main")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]jobs.Message{
		"long key": {Key: strings.Repeat("k", jobs.MaxKeyLength+1)}, "key with NUL": {Key: "\x00"}, "key not UTF-8": {Key: "\xff"},
		"long topic": {Topic: strings.Repeat("t", jobs.MaxTopicLength+1)}, "topic with NUL": {Topic: "\x00"}, "topic not UTF-8": {Topic: "\xff"},
		"large body": {Body: make([]byte, jobs.MaxBodySize+1)},
	} {
		if err := outbox.Write(t.Context(), nil, m); !errors.Is(err, jobs.ErrInvalidMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := outbox.Write(t.Context(), nil, make([]jobs.Message, jobs.MaxBatch+1)...); !errors.Is(err, jobs.ErrInvalidMessage) {
		t.Errorf("too many: %v", err)
	}
	large := slices.Repeat([]jobs.Message{{Body: make([]byte, jobs.MaxBodySize)}}, jobs.MaxCallSize/jobs.MaxBodySize+1)
	if err := outbox.Write(t.Context(), nil, large...); !errors.Is(err, jobs.ErrInvalidMessage) {
		t.Errorf("too large: %v", err)
	}
	if _, err := outbox.Prune(t.Context(), -1); !errors.Is(err, jobs.ErrInvalidMessage) {
		t.Errorf("prune the future: %v", err)
	}
	if _, err := outbox.Relay(fence.Token{}); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("zero token: %v", err)
	}
	if _, err := outbox.Relay(relayToken(t, "outbox/other", 1)); !errors.Is(err, fence.ErrOtherResource) {
		t.Errorf("another's token: %v", err)
	}
	for name, s := range map[string]jobs.States{"no table": {}, "NUL": {Table: pgx.Identifier{"a\x00"}}, "column": {Table: pgx.Identifier{"a"}, ID: "\xff"}} {
		if err := s.Swap(t.Context(), b.pool, 1, "a", "b"); !errors.Is(err, jobs.ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (jobs.States{Table: pgx.Identifier{"a"}}).Swap(t.Context(), b.pool, 1, "a\x00", "b"); !errors.Is(err, jobs.ErrInvalidConfig) {
		t.Errorf("state: %v", err)
	}
}

// What passes the checks comes back byte for byte.
func TestNames_T8(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	names := []string{
		"a", "A", "a ", " a", `a"b`, "a'b", `a\b`, "a;--", "$1", "📈", "é", "e\u0301", "ß", "ss", "a:b", "{a,b}", "NULL", "null",
		strings.Repeat("n", jobs.MaxQueueLength),
	}
	var all []jobs.Job
	for _, name := range names {
		all = append(all, jobs.Job{Queue: name, Partition: name, Unique: jobs.Unique{Key: name}})
	}
	receipts, err := b.Enqueue(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		claims, err := b.Claim(t.Context(), name, 10)
		if err != nil || len(claims) != 1 || claims[0].ID != receipts[i].ID || claims[0].Partition != name {
			t.Fatalf("%q: %v, %v", name, claims, err)
		}
		if text := claims[0].PartitionToken().String(); !strings.HasSuffix(text, ":partition/"+name+"/"+name) {
			t.Errorf("%q: %s", name, text)
		}
		if info, err := b.Job(t.Context(), receipts[i].ID); err != nil || info.UniqueKey != name || info.Queue != name {
			t.Errorf("%q: %+v, %v", name, info, err)
		}
	}
}

// The limits are the table's too, so that psql cannot pass them.
func TestTableHoldsTheLimits(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	deep := strings.Repeat("[", jobs.MaxPayloadDepth) + strings.Repeat("]", jobs.MaxPayloadDepth)
	b.enqueue(jobs.Job{Payload: []byte(deep)}, jobs.Job{Payload: []byte(`"` + strings.Repeat("x", jobs.MaxPayloadSize-2) + `"`)})
	for _, sql := range []string{
		"UPDATE pglease.job SET priority = 3", "UPDATE pglease.job SET state = 'finished'", "UPDATE pglease.job SET queue = ''",
		"UPDATE pglease.job SET unique_key = repeat('x', 257)", "UPDATE pglease.job_installation SET epoch = epoch + interval '1 day'",
		"DELETE FROM pglease.job_installation",
	} {
		if _, err := b.pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was accepted", sql)
		}
	}
}

func TestNewTellsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := jobs.New(nil, jobs.Config{
		Schema: "pg_x", Owner: "a\x00", TTL: time.Millisecond, HeartbeatEvery: time.Hour, RetryMax: 1, Concurrency: 1 << 20, PollEvery: 1,
	})
	if !errors.Is(err, jobs.ErrInvalidConfig) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"pool", "pg_x", "Owner", "TTL", "HeartbeatEvery", "RetryMax", "Concurrency", "PollEvery"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not speak of %s", err, part)
		}
	}
	_, err = jobs.New(nil, jobs.Config{TTL: -1, MaxAttempts: -1, StopTimeout: -1, KeepFinished: -1})
	for _, part := range []string{"TTL", "MaxAttempts", "StopTimeout", "KeepFinished"} {
		if !strings.Contains(err.Error(), part+" is negative") {
			t.Errorf("%q does not speak of %s", err, part)
		}
	}
}
