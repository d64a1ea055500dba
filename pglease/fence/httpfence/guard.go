package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglease/pglease/internal/bounded"
	"github.com/pglease/pglease/pglease/fence"
)

// Defaults of a Config.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultMaxBytes = 8 << 20
)

// Config says what a Guard does. The zero value of each field but Resource means its default.
type Config struct {
	// Resource names what a request changes. A token of another resource does not open it: fences
	// of two resources have no order. It is asked of requests that change something, and should
	// say the same for all the ways to change the same thing. An empty name, or another that no
	// resource can have, refuses the request as one of another resource.
	Resource func(*http.Request) string

	// Owner names who sent a request to people, in rejections, as a client's certificate does. At most
	// 256 bytes of it are kept. Default: nobody.
	Owner func(*http.Request) string

	// Watermarks are where the greatest fences are. Default: in the schema "pglease".
	Watermarks *fence.Watermarks

	// Timeout bounds the waiting for a resource and the transaction of a handler; and, once more, the
	// answer of a device behind a gateway. A process that stops in between holds the resource for a
	// little longer than this. Default: DefaultTimeout.
	Timeout time.Duration

	// MaxBytes bounds the body of a request that changes something, and of the reply to it: both are
	// kept in memory, so that no slow client holds the resource. Default: DefaultMaxBytes.
	MaxBytes int64
}

// A Database is a pool of connections, such as a *pgxpool.Pool.
type Database interface {
	fence.Beginner
	fence.DB
}

// A Guard lets requests through in the order of their fences. It is safe for concurrent use and
// holds nothing that needs closing; the pool stays the caller's. Its handlers take one connection a
// resource at a time, however many requests wait for it.
type Guard struct {
	db     Database
	config Config
	line   line
}

// New returns a Guard whose watermarks are in the pool's database, where the line "fence" of the
// migrations has made the tables. It sends nothing. The error tells all that is wrong with cfg.
func New(db Database, cfg Config) (*Guard, error) {
	var problems []error
	if db == nil {
		problems = append(problems, errors.New("the pool is nil"))
	}
	if cfg.Resource == nil {
		problems = append(problems, errors.New("Config.Resource is needed"))
	}
	if cfg.Timeout < 0 || cfg.MaxBytes < 0 {
		problems = append(problems, errors.New("Config.Timeout and Config.MaxBytes cannot be negative"))
	}
	if cfg.Watermarks == nil {
		w, err := fence.NewWatermarks(fence.Config{})
		problems = append(problems, err)
		cfg.Watermarks = w
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("httpfence: %w", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	return &Guard{db: db, config: cfg}, nil
}

// A passage is one request on its way through.
type passage struct {
	guard   *Guard
	request *http.Request
	token   fence.Token
	op      fence.Op // without Apply
}

// enter reads what a request says about itself, and the whole of its body.
func (g *Guard) enter(w http.ResponseWriter, r *http.Request) (passage, error) {
	token, err := FromHeader(r.Header)
	if err != nil {
		return passage{}, err
	}
	if resource := g.config.Resource(r); token.Resource() != resource {
		return passage{}, fmt.Errorf("%w: the request is for %q", fence.ErrOtherResource, resource)
	}
	p := passage{guard: g, token: token, op: fence.Op{Key: r.Header.Get(KeyHeader), Owner: g.owner(r)}}
	if p.op.Sequence, err = sequence(r.Header); err != nil {
		return passage{}, err
	}
	if len(r.Header.Values(KeyHeader)) > 1 || len(p.op.Key) > fence.MaxKeyLength || p.op.Key != clean(p.op.Key) {
		return passage{}, fmt.Errorf("%w: %s", ErrMalformed, KeyHeader)
	}
	p.request, err = buffered(w, r, g.config.MaxBytes)
	return p, err
}

func (g *Guard) owner(r *http.Request) string {
	if g.config.Owner == nil {
		return ""
	}
	name := g.config.Owner(r)
	return clean(name[:min(len(name), fence.MaxOwnerLength)])
}

// clean is what Postgres can hold of a text.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
}

func sequence(h http.Header) (int64, error) {
	values := h.Values(SequenceHeader)
	if len(values) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || n < 1 || len(values) > 1 || strconv.FormatInt(n, 10) != values[0] {
		return 0, fmt.Errorf("%w: %s: want one positive whole number", ErrMalformed, SequenceHeader)
	}
	return n, nil
}

// begin begins a transaction that does not outlive its process's interest by much: a process that
// stops in it would keep the next owner out. READ COMMITTED is what the rule needs.
func (g *Guard) begin(ctx context.Context) (pgx.Tx, error) {
	return bounded.Begin(ctx, g.db, g.config.Timeout+idleSlack)
}

const (
	idleSlack    = 2 * time.Second // beyond the Timeout, for what is not waiting
	rollbackTime = 5 * time.Second // for a rollback, which follows the end of a context
)

// rollback ends a transaction that may have ended already.
func (g *Guard) rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_ = tx.Rollback(ctx)
}
