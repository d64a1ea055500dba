//go:build unix

package filestore_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/fencetest"
	"github.com/pglease/pglease/pglease/fence/filestore"
)

// Four stores on one directory, as four processes have: they share nothing but the files.
func TestDirectoryConforms(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Resource {
		t.Helper()
		dir, log := t.TempDir(), t.TempDir()+"/log"
		stores := make([]*filestore.Store, 4)
		for i := range stores {
			stores[i] = open(t, dir, fencetest.DefaultName)
			stores[i].OnStep(func(step string) {
				if step == "content renamed" {
					if err := record(stores[i], "file", log); err != nil {
						t.Error(err)
					}
				}
			})
		}
		one := func() *filestore.Store { return stores[rand.IntN(len(stores))] }
		return fencetest.Resource{
			Write: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
				return one().Write(ctx, token, "file", []byte(c.ID))
			},
			Establish: func(ctx context.Context, token fence.Token) error { return one().Establish(ctx, token) },
			Crash: func(ctx context.Context, token fence.Token, c fencetest.Command) error {
				err := killed(ctx, job{
					Dir: dir, Resource: fencetest.DefaultName, Log: log, Owners: []fence.Token{token},
					Name: "file", Text: c.ID, DieAt: "content synced",
				})
				if err != nil {
					t.Error(err)
				}
				return err
			},
			History: func(context.Context) ([]fencetest.Entry, error) { return recorded(log) },
		}
	})
}
