package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

const (
	// MaxBodySize is the largest body of a message in bytes.
	MaxBodySize = 1 << 20

	// MaxTopicLength is the longest topic in bytes.
	MaxTopicLength = 256
)

// An Outbox keeps messages that are written in the same transaction as the change that they tell
// of, and has them relayed afterwards: at least once each, in the order of commits among those with
// one key. It is safe for concurrent use.
type Outbox struct {
	client *Client
	name   string
}

// Outbox returns the outbox of a name. The name is also that of the resource whose lease a relay
// holds: 1 to 512 bytes. It sends nothing.
func (c *Client) Outbox(name string) (*Outbox, error) {
	if err := fence.CheckResource(name); err != nil {
		return nil, wrap("outbox", "", 0, err)
	}
	return &Outbox{client: c, name: name}, nil
}

// A Message is written with a change.
type Message struct {
	// Key names what the message is about: messages of one key are relayed in the order in which
	// their transactions committed. At most MaxKeyLength bytes.
	Key string

	// Topic says where it goes. At most MaxTopicLength bytes.
	Topic string

	// Body is any bytes, at most MaxBodySize.
	Body []byte
}

// Write adds up to MaxBatch messages, with at most MaxCallSize bytes in all, to the outbox in the
// caller's transaction: they exist when that commits, and are gone when it does not.
//
// Until then the transaction has the lock of each key. Whoever writes under one of these keys
// waits, which is what puts ids in the order of commits; so write last, and commit soon. Who writes
// under several keys in several calls keeps to one order of keys. Relays never wait.
func (o *Outbox) Write(ctx context.Context, tx pgx.Tx, messages ...Message) error {
	p := jobsdb.WriteMessagesParams{Outbox: o.name}
	names := make([]string, 0, len(messages))
	err := checkMessages(messages)
	for _, m := range messages {
		body := m.Body
		if body == nil {
			body = []byte{} // pgx sends nil as NULL
		}
		p.MessageKeys, p.Topics, p.Bodies = append(p.MessageKeys, m.Key), append(p.Topics, m.Topic), append(p.Bodies, body)
		names = append(names, o.client.schema.Name()+"\x01o\x01"+o.name+"\x01"+m.Key)
	}
	db := o.client.schema.On(tx)
	if err == nil && len(messages) > 0 {
		err = o.client.queries.LockNames(ctx, db, names)
	}
	if err == nil && len(messages) > 0 {
		// A statement of its own, so that ids are drawn after the locks are held.
		_, err = o.client.queries.WriteMessages(ctx, db, p)
	}
	return wrap("write", o.name, 0, err)
}

func checkMessages(messages []Message) error {
	if len(messages) > MaxBatch {
		return fmt.Errorf("%w: %d in one call, the limit is %d", ErrInvalidMessage, len(messages), MaxBatch)
	}
	size := 0
	for i, m := range messages {
		if size += len(m.Body); size > MaxCallSize {
			return fmt.Errorf("%w: the bodies of one call have more than %d bytes", ErrInvalidMessage, MaxCallSize)
		}
		for _, text := range []struct {
			what, text string
			limit      int
		}{{"key", m.Key, MaxKeyLength}, {"topic", m.Topic, MaxTopicLength}} {
			switch {
			case len(text.text) > text.limit:
				return fmt.Errorf("%w: number %d: its %s is %d bytes long, the limit is %d", ErrInvalidMessage, i, text.what, len(text.text), text.limit)
			case !utf8.ValidString(text.text) || strings.ContainsRune(text.text, 0):
				return fmt.Errorf("%w: number %d: its %s %q is not valid UTF-8 without NUL", ErrInvalidMessage, i, text.what, text.text)
			}
		}
		if len(m.Body) > MaxBodySize {
			return fmt.Errorf("%w: number %d: its body has %d bytes, the limit is %d", ErrInvalidMessage, i, len(m.Body), MaxBodySize)
		}
	}
	return nil
}

// Prune deletes messages that were relayed longer ago than age, and reports how many.
func (o *Outbox) Prune(ctx context.Context, age time.Duration) (int64, error) {
	if age < 0 {
		return 0, wrap("prune", o.name, 0, fmt.Errorf("%w: the age %v is negative", ErrInvalidMessage, age))
	}
	c := o.client
	n, err := inBatches(func() (int64, error) {
		return c.queries.PruneMessages(ctx, c.schema.On(c.pool), jobsdb.PruneMessagesParams{Outbox: o.name, Age: age, MaxRows: pruneBatch})
	})
	return n, wrap("prune", o.name, 0, err)
}

// establish raises the watermark of the outbox to the relay's token.
func (o *Outbox) establish(ctx context.Context, token fence.Token) error {
	return o.client.alone(ctx, func(db jobsdb.DBTX) error {
		_, err := o.client.queries.EstablishRelay(ctx, db, jobsdb.EstablishRelayParams{
			Outbox: o.name, Fence: token.Fence(), LeaseID: leaseID(token),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: another relay of %q has come since", fence.ErrStaleOwner, o.name)
		}
		return err
	})
}

func leaseID(token fence.Token) pgtype.UUID { return uuid(token.LeaseID()) }
