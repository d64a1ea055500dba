package httpfence_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/pglease/fence/httpfence"
)

// A service whose data are in Postgres, and a client that works under a lease.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	guard, err := httpfence.New(pool, httpfence.Config{
		Resource: func(r *http.Request) string { return "device/" + r.PathValue("id") },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("PUT /devices/{id}", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx := httpfence.Tx(r.Context()) // the watermark is raised in it
		if _, err := tx.Exec(r.Context(), `UPDATE device SET setting = 'on' WHERE device_id = $1`, r.PathValue("id")); err != nil {
			http.Error(w, "not now", http.StatusServiceUnavailable) // rolled back
			return
		}
		w.WriteHeader(http.StatusNoContent) // sent once it is committed
	})))

	var token fence.Token // lease.Token()
	client := &http.Client{Transport: &httpfence.Transport{Token: token}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://devices.internal/devices/pump-7", strings.NewReader("on"))
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := client.Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	if fence.IsStale(httpfence.ResponseError(response)) {
		fmt.Println("another owner has taken over")
	}
}
