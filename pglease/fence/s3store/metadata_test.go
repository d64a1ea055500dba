package s3store_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A naive store keeps the fence in the metadata of the object itself, and puts on condition of the
// ETag that the fence was read with. It looks right.
type naive struct {
	client *s3.Client
	bucket string
}

const naiveKey = "naive"

// read returns the fence, and the ETag to put over.
func (n naive) read(ctx context.Context, t *testing.T) (number int, etag string) {
	t.Helper()
	head, err := n.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &n.bucket, Key: aws.String(naiveKey)})
	if err != nil {
		t.Fatal(err)
	}
	number, err = strconv.Atoi(head.Metadata["fence"])
	if err != nil {
		t.Fatal(err)
	}
	return number, aws.ToString(head.ETag)
}

func (n naive) put(ctx context.Context, number int, text, over string) error {
	in := &s3.PutObjectInput{
		Bucket: &n.bucket, Key: aws.String(naiveKey), Body: strings.NewReader(text),
		Metadata: map[string]string{"fence": strconv.Itoa(number)},
	}
	if over == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &over
	}
	_, err := n.client.PutObject(ctx, in)
	return err
}

// Why the fence is not in the metadata: the ETag covers the content alone, so a newer owner that
// writes the same content does not shut out the older one, and the fence goes from 2 back to 1.
func TestFenceInMetadataFalls(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *s3.Client, bucket string) {
		n, ctx := naive{client, bucket}, t.Context()
		if err := n.put(ctx, 1, "A", ""); err != nil {
			t.Fatal(err)
		}
		// Owner 1 looks: the fence is its own. It stops here.
		_, seen := n.read(ctx, t)

		// Owner 2 looks too, and writes what is there already.
		_, current := n.read(ctx, t)
		if err := n.put(ctx, 2, "A", current); err != nil {
			t.Fatal(err)
		}
		if number, _ := n.read(ctx, t); number != 2 {
			t.Fatalf("the fence is %d, want 2", number)
		}

		// Owner 1 resumes.
		err := n.put(ctx, 1, "B", seen)
		if number, _ := n.read(ctx, t); err != nil || number != 1 {
			t.Errorf("the late put: %v, the fence is %d: this store's ETags cover metadata, so that it shows nothing", err, number)
		}
	})
}
