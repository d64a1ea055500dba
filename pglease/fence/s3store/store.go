package s3store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/pglease/pglease/pglease/fence"
)

// A Client is what a Store needs of an *s3.Client.
type Client interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// Config says where the objects are.
type Config struct {
	// Bucket must exist.
	Bucket string

	// Prefix starts the keys of all that the Store writes, as in "leases/". Default: none.
	Prefix string

	// Owner names this process to people, in pointers and in the errors of others. It never decides
	// anything, so two processes may share it. At most 256 bytes. Default: none.
	Owner string

	// Recorder keeps the refusals of stale owners, as by fence.Watermarks.Recorder. Default: they are
	// only returned.
	Recorder fence.Recorder
}

// A Store keeps objects, one a resource. It is safe for concurrent use, and any number of them may
// be open on the same objects. It holds nothing that needs closing; the client stays the caller's.
type Store struct {
	client Client
	config Config
}

// Open returns a store, once it has tried whether the bucket's conditional writes work: it puts a
// few small objects under a key of its own, and deletes it. The error matches
// ErrNoConditionalWrites where they do not work; it tells all that is wrong with cfg, or is the
// client's.
func Open(ctx context.Context, client Client, cfg Config) (*Store, error) {
	s := &Store{client: client, config: cfg}
	if err := s.check(); err != nil {
		return nil, wrap("open", cfg.Bucket, err)
	}
	if err := s.probe(ctx); err != nil {
		return nil, wrap("open", cfg.Bucket, err)
	}
	return s, nil
}

// maxPrefix leaves room in a key of 1,024 bytes.
const maxPrefix = 512

func (s *Store) check() error {
	var problems []error
	if s.client == nil {
		problems = append(problems, errors.New("the client is nil"))
	}
	if s.config.Bucket == "" {
		problems = append(problems, errors.New("the bucket has no name"))
	}
	if n := len(s.config.Prefix); n > maxPrefix {
		problems = append(problems, fmt.Errorf("the prefix has %d bytes, the limit is %d", n, maxPrefix))
	}
	if n := len(s.config.Owner); n > fence.MaxOwnerLength {
		problems = append(problems, fmt.Errorf("the owner's name has %d bytes, the limit is %d", n, fence.MaxOwnerLength))
	}
	return errors.Join(problems...)
}

// PointerKey returns the key of a resource's pointer. It begins with the prefix and as much of the
// name as people need to find it; a hash of the name tells apart what looks alike.
func (s *Store) PointerKey(resource string) string { return s.base(resource) + "/pointer" }

func (s *Store) dataPrefix(resource string) string { return s.base(resource) + "/data/" }

// dataKey sorts by fence.
func (s *Store) dataKey(token fence.Token, nonce string) string {
	return fmt.Sprintf("%s%016d-%s", s.dataPrefix(token.Resource()), token.Fence(), nonce)
}

// readable is how much of a name is in the keys.
const readable = 64

func (s *Store) base(resource string) string {
	hash := sha256.Sum256([]byte(resource))
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			return r
		}
		return '-'
	}, resource)
	return s.config.Prefix + plain[:min(len(plain), readable)] + "." + hex.EncodeToString(hash[:16])
}

// newNonce draws 128 bits.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// once has a request sent one time only.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }
