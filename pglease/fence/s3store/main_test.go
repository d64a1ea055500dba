package s3store_test

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/s3store"
)

func TestMain(m *testing.M) {
	code := m.Run()
	stopGateway()
	os.Exit(code)
}

const july = "report/2026-07"

// A server is one kind of store that the tests run on.
type server struct {
	name   string
	client func(t *testing.T) *s3.Client
}

// servers are one in this process; and versitygw on a directory, where PGLEASE_VERSITYGW names its
// binary: it takes minutes to build and is not what most changes need.
func servers() []server {
	all := []server{{"gofakes3", inProcess}}
	if os.Getenv(gatewayVariable) != "" {
		all = append(all, server{"versitygw", onGateway})
	}
	return all
}

// onEach runs a test on each kind of store, with a bucket of its own.
func onEach(t *testing.T, test func(t *testing.T, client *s3.Client, bucket string)) {
	t.Helper()
	for _, s := range servers() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			client := s.client(t)
			test(t, client, newBucket(t, client))
		})
	}
}

func inProcess(t *testing.T) *s3.Client {
	t.Helper()
	fake := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(fake.Close)
	return newClient(fake.URL, "user", "secret")
}

func newClient(url, user, secret string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &url, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(user, secret, ""),
	})
}

func newBucket(t *testing.T, client *s3.Client) string {
	t.Helper()
	bucket := "test-" + strings.ToLower(rnd())
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
	return bucket
}

func open(t *testing.T, client s3store.Client, bucket string) *s3store.Store {
	t.Helper()
	store, err := s3store.Open(t.Context(), client, s3store.Config{Bucket: bucket, Prefix: "leases/", Owner: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// parse makes a token of july; lease tells leases apart.
func parse(t *testing.T, number, lease int) fence.Token {
	t.Helper()
	token, err := fence.Parse(fmt.Sprintf("%d:0197a3c2-6c1e-7d6f-8f5b-%012x:%s", number, lease, july))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// token makes the token with a fence and the lease that goes with it.
func token(t *testing.T, number int) fence.Token {
	t.Helper()
	return parse(t, number, number)
}

func object(text string) s3store.Object { return s3store.Object{Body: strings.NewReader(text)} }

// put stores a text and fails the test unless that makes the version.
func put(t *testing.T, store *s3store.Store, by int, text string, version int64) {
	t.Helper()
	v, err := store.Put(t.Context(), token(t, by), object(text))
	if err != nil {
		t.Fatal(err)
	}
	if v.Number != version || v.Fence != int64(by) || v.Size != int64(len(text)) {
		t.Fatalf("put %q: got %+v, want version %d", text, v, version)
	}
}

// holds fails the test unless july has the text, version and fence. An empty text is none.
func holds(t *testing.T, store *s3store.Store, text string, version, number int64) {
	t.Helper()
	body, _, err := store.Get(t.Context(), july)
	switch {
	case text == "" && errors.Is(err, fence.ErrNotFound):
	case err != nil:
		t.Fatal(err)
	default:
		defer body.Close()
		if got, err := io.ReadAll(body); err != nil || string(got) != text {
			t.Fatalf("got %q, %v; want %q", got, err, text)
		}
	}
	mark, err := store.Watermark(t.Context(), july)
	if err != nil || mark.Fence != number || mark.Version != version || mark.Owner != "tester" {
		t.Fatalf("got %+v, %v; want version %d, fence %d", mark, err, version, number)
	}
}

// keys lists the keys in a bucket that have a part in them.
func keys(t *testing.T, client *s3.Client, bucket, part string) (found []string) {
	t.Helper()
	out, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out.Contents {
		if strings.Contains(*o.Key, part) {
			found = append(found, *o.Key)
		}
	}
	return found
}

// overwrite puts an object without asking anybody.
func overwrite(t *testing.T, client *s3.Client, bucket, key, text string) {
	t.Helper()
	_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
}

var _ s3store.Client = (*s3.Client)(nil)
