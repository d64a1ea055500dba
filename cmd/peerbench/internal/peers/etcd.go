package peers

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pglease/pglease/cmd/peerbench/internal/measure"
	"github.com/pglease/pglease/cmd/peerbench/internal/servers"
)

func etcdPeer() Peer {
	return Peer{
		Name: "etcd", Title: "etcd concurrency.Mutex", Server: servers.Etcd,
		Facts: Facts{
			Fence:    "the key's revision grows with each grant; nobody checks it",
			Order:    "in the order in which they came",
			Wakes:    "told: a watch on the one ahead",
			Durable:  "yes, synced before it answers; here one member, in service three or five",
			Renews:   "one session with all of its locks; nothing is written",
			Lacks:    "no transaction with the data that is protected; no record of who held what",
			InOrder:  true,
			Packages: "go.etcd.io/etcd/client/v3",
		},
		Open: openEtcd, Renew: renewEtcd,
	}
}

func etcdClient(ctx context.Context, o Options) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{o.Address}, DialTimeout: 10 * time.Second, Context: ctx, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
				o.Count.Add(1)
				return invoke(ctx, method, request, reply, conn, options...)
			}),
			grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := stream(ctx, desc, conn, method, options...)
				return countedStream{s, o.Count}, err
			}),
		},
	})
}

// countedStream counts what a client sends on a stream: the start and the end of a watch, the
// renewal of a lease.
type countedStream struct {
	grpc.ClientStream
	count *measure.Counter
}

// SendMsg implements grpc.ClientStream.
func (s countedStream) SendMsg(m any) error {
	s.count.Add(1)
	return s.ClientStream.SendMsg(m)
}

// openEtcd gives each session a client, and so a connection, of its own.
func openEtcd(ctx context.Context, o Options) (Crowd, error) {
	var ends closers
	crowd := Crowd{}
	for range o.N {
		client, err := etcdClient(context.WithoutCancel(ctx), o)
		if err != nil {
			ends.close()
			return Crowd{}, err
		}
		ends.add(func() { _ = client.Close() })
		session, err := concurrency.NewSession(client, concurrency.WithTTL(seconds(o.TTL)))
		if err != nil {
			ends.close()
			return Crowd{}, err
		}
		ends.add(func() { _ = session.Close() })
		crowd.Sessions = append(crowd.Sessions, etcdSession{session})
	}
	crowd.Close = ends.close
	return crowd, nil
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

type etcdSession struct{ session *concurrency.Session }

// Acquire implements Session.
func (s etcdSession) Acquire(ctx context.Context, key string, wait bool) (func(context.Context) error, error) {
	mutex := concurrency.NewMutex(s.session, "peerbench/"+key)
	lock := mutex.TryLock
	if wait {
		lock = mutex.Lock
	}
	if err := lock(ctx); err != nil {
		return nil, err
	}
	return mutex.Unlock, nil
}

// renewEtcd renews one session after another: the lock itself has no renewal of its own.
func renewEtcd(ctx context.Context, o Options) (Renewals, error) {
	client, err := etcdClient(context.WithoutCancel(ctx), o)
	if err != nil {
		return Renewals{}, err
	}
	end := func() { _ = client.Close() }
	ids := make([]clientv3.LeaseID, o.N)
	for i := range ids {
		lease, err := client.Grant(ctx, int64(seconds(renewTTL)))
		if err != nil {
			end()
			return Renewals{}, err
		}
		ids[i] = lease.ID
	}
	next := 0
	return Renewals{Load: measure.Load{Run: measure.Closed(1, func(ctx context.Context, _ int) (int, error) {
		id := ids[next%len(ids)]
		next++
		_, err := client.KeepAliveOnce(ctx, id)
		return 1, err
	}), Spent: o.Count.Count}, Close: end}, nil
}
