package containers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/pglease/pglease/migrations"
	"github.com/pglease/pglease/pglease"
	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

// A stage has two databases in containers, each in a network of its own, and an owner in a third container
// that is in both networks. The test itself is a client from outside.
type stage struct {
	engine     *testcontainers.DockerClient
	toLeases   *testcontainers.DockerNetwork // between the owner and the database of the leases
	leases     *testcontainers.DockerContainer
	owner      *testcontainers.DockerContainer
	words      *words
	client     *pglease.Client
	store      *reportstore.Store
	leasesPool *pgxpool.Pool
	first      fence.Token // the owner's
}

func image(t *testing.T) string {
	t.Helper()
	name := os.Getenv("PGLEASE_CONTAINER_IMAGE")
	if name == "" {
		const missing = "needs a container engine, and PGLEASE_CONTAINER_IMAGE with the name of an image with Postgres: see internal/containers/doc.go"
		if os.Getenv("PGLEASE_REQUIRE_ALL") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return name
}

// newStage returns when the owner has published.
func newStage(t *testing.T) *stage {
	t.Helper()
	name := image(t)
	engine, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	s := &stage{engine: engine, words: &words{}, toLeases: newNetwork(t)}
	toReports := newNetwork(t)
	leases, leasesURL := database(t, name, "leases", s.toLeases, migrations.Lease)
	_, reportsURL := database(t, name, "reports", toReports, migrations.Lease, migrations.Report)
	s.leases = leases
	if s.store, err = reportstore.New(poolOf(t, reportsURL), reportstore.Config{Owner: "outside"}); err != nil {
		t.Fatal(err)
	}
	s.leasesPool = poolOf(t, leasesURL)
	if s.client, err = pglease.New(t.Context(), s.leasesPool, pglease.Config{Owner: "outside", TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClient(t, s.client) })
	s.hire(t, name, toReports)
	return s
}

func newNetwork(t *testing.T) *testcontainers.DockerNetwork {
	t.Helper()
	n, err := network.New(t.Context())
	testcontainers.CleanupNetwork(t, n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const password = "frog"

func database(t *testing.T, image, alias string, n *testcontainers.DockerNetwork, lines ...migrations.Line) (*testcontainers.DockerContainer, string) {
	t.Helper()
	c, err := testcontainers.Run(t.Context(), image,
		testcontainers.WithEnv(map[string]string{"POSTGRES_PASSWORD": password}),
		testcontainers.WithExposedPorts("5432/tcp"),
		network.WithNetwork([]string{alias}, n),
		testcontainers.WithWaitStrategyAndDeadline(2*time.Minute, wait.ForLog("ready to accept connections")))
	testcontainers.CleanupContainer(t, c)
	if err != nil {
		t.Fatal(err)
	}
	host, err := c.Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	port, err := c.MappedPort(t.Context(), "5432/tcp")
	if err != nil {
		t.Fatal(err)
	}
	url := urlOf(host, port.Num())
	pool := poolOf(t, url)
	for _, line := range lines {
		if err := migrations.Up(t.Context(), pool, line); err != nil {
			t.Fatal(err)
		}
	}
	return c, url
}

func urlOf(host string, port uint16) string {
	return fmt.Sprintf("postgres://postgres:%s@%s:%d/postgres?sslmode=disable&connect_timeout=2", password, host, port)
}

func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// hire starts the owner, which is this program, and returns when it has published.
func (s *stage) hire(t *testing.T, image string, toReports *testcontainers.DockerNetwork) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.owner, err = testcontainers.Run(t.Context(), image,
		testcontainers.WithFiles(testcontainers.ContainerFile{HostFilePath: self, ContainerFilePath: "/tmp/owner", FileMode: 0o755}),
		testcontainers.WithEntrypoint("/tmp/owner"),
		testcontainers.WithEnv(map[string]string{workerEnv: "1", "LEASES": urlOf("leases", 5432), "REPORTS": urlOf("reports", 5432)}),
		network.WithNetwork(nil, s.toLeases), network.WithNetwork(nil, toReports),
		testcontainers.WithLogConsumers(s.words))
	testcontainers.CleanupContainer(t, s.owner)
	if err != nil {
		t.Fatal(err)
	}
	granted := s.words.await(t, func(w word) bool { return w.Said == "granted" })
	if s.first, err = fence.Parse(granted.Token); err != nil {
		t.Fatal(err)
	}
	s.published(t, 1)
}

// published returns when that many versions more have been published.
func (s *stage) published(t *testing.T, more int) {
	t.Helper()
	for want := len(s.history(t)) + more; len(s.history(t)) < want; {
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *stage) history(t *testing.T) []reportstore.Version {
	t.Helper()
	history, err := s.store.History(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	return history
}

// id is the container's name to the engine.
func id(c *testcontainers.DockerContainer) string { return c.GetContainerID() }

func (s *stage) pause(t *testing.T, c *testcontainers.DockerContainer) {
	t.Helper()
	if _, err := s.engine.ContainerPause(t.Context(), id(c), client.ContainerPauseOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) unpause(t *testing.T, c *testcontainers.DockerContainer) {
	t.Helper()
	if _, err := s.engine.ContainerUnpause(t.Context(), id(c), client.ContainerUnpauseOptions{}); err != nil {
		t.Fatal(err)
	}
}

// words are what the owner has said, in a log that arrives in pieces.
type words struct {
	mu   sync.Mutex
	text []byte
	said []word
}

// Accept implements testcontainers.LogConsumer.
func (w *words) Accept(l testcontainers.Log) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, l.Content...)
	for {
		line, rest, whole := bytes.Cut(w.text, []byte("\n"))
		if !whole {
			return
		}
		w.text = rest
		var said word
		if json.Unmarshal(line, &said) != nil {
			said = word{Said: "error", Err: string(line)}
		}
		w.said = append(w.said, said)
	}
}

// await returns the first word that fits.
func (w *words) await(t *testing.T, fits func(word) bool) word {
	t.Helper()
	for {
		w.mu.Lock()
		for _, said := range w.said {
			if fits(said) {
				w.mu.Unlock()
				return said
			}
			if said.Said == "error" {
				w.mu.Unlock()
				t.Fatal(said.Err)
			}
		}
		w.mu.Unlock()
		if t.Context().Err() != nil {
			t.Fatal("the owner says nothing more")
		}
		<-time.After(10 * time.Millisecond)
	}
}
