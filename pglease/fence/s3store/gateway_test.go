package s3store_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// gatewayVariable names the binary of versitygw.
const gatewayVariable = "PGLEASE_VERSITYGW"

// The gateway is started once, for all tests.
var gateway struct {
	start   sync.Once
	address string
	dir     string
	process *exec.Cmd
	err     error
}

func onGateway(t *testing.T) *s3.Client {
	t.Helper()
	gateway.start.Do(func() { gateway.err = startGateway() })
	if gateway.err != nil {
		t.Fatal(gateway.err)
	}
	return newClient("http://"+gateway.address, "user", "secret")
}

func startGateway() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	gateway.address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}
	gateway.dir, err = os.MkdirTemp("", "pglease-versitygw-") // it outlives the test that starts it
	if err != nil {
		return err
	}
	gateway.process = exec.Command(os.Getenv(gatewayVariable), "--port", gateway.address, "--quiet", "posix", gateway.dir)
	gateway.process.Env = append(os.Environ(), "ROOT_ACCESS_KEY=user", "ROOT_SECRET_KEY=secret")
	if err := gateway.process.Start(); err != nil {
		return err
	}
	return answering()
}

// answering waits until the gateway does.
func answering() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := newClient("http://"+gateway.address, "user", "secret")
	for ctx.Err() == nil {
		if _, err := client.ListBuckets(ctx, &s3.ListBucketsInput{}); err == nil {
			return nil
		}
	}
	return fmt.Errorf("versitygw does not answer on %s", gateway.address)
}

func stopGateway() {
	if gateway.process != nil && gateway.process.Process != nil {
		_ = gateway.process.Process.Kill()
		_ = gateway.process.Wait()
	}
	if gateway.dir != "" {
		_ = os.RemoveAll(gateway.dir)
	}
}

func rnd() string { return rand.Text()[:16] }
