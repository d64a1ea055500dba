package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pglease/pglease/pglease/fence"
	"github.com/pglease/pglease/reportstore"
)

func reportFlag(c *cobra.Command, report *string) {
	c.Flags().StringVar(report, "report", "", "the report's name, as in report/2026-07")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *report == "" {
			return usageError{errors.New("--report is missing")}
		}
		return nil
	}
}

// nameFlags name a report in the store: one that publish wrote, or with --queue one of the workers.
func nameFlags(c *cobra.Command, report, queue *string) {
	reportFlag(c, report)
	c.Flags().StringVar(queue, "queue", "", "the report that workers of this queue publish")
	given := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		err := given(c, args)
		if err == nil && *queue != "" {
			*report = stored(*queue, *report)
		}
		return err
	}
}

func newRead() *cobra.Command {
	var d database
	var report, queue string
	var version int64
	c := &cobra.Command{
		Use:   "read --report NAME",
		Short: "Print a published report",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if version < 0 {
				return usageError{errors.New("--version is negative")}
			}
			return d.withStore(c.Context(), "", func(_ *pgxpool.Pool, store *reportstore.Store) error {
				read := func() (reportstore.Published, error) { return store.Read(c.Context(), report) }
				if version > 0 {
					read = func() (reportstore.Published, error) { return store.ReadVersion(c.Context(), report, version) }
				}
				published, err := read()
				if err != nil {
					return err
				}
				_, err = c.OutOrStdout().Write(published.Body)
				return err
			})
		},
	}
	nameFlags(c, &report, &queue)
	d.flags(c)
	c.Flags().Int64Var(&version, "version", 0, "an earlier version (default the last)")
	return c
}

func newHistory() *cobra.Command {
	var d database
	var report, queue string
	var asJSON bool
	c := &cobra.Command{
		Use:   "history --report NAME",
		Short: "Show a report's versions and the writes that it refused",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return d.withStore(c.Context(), "", func(_ *pgxpool.Pool, store *reportstore.Store) error {
				versions, err := store.History(c.Context(), report)
				if err != nil {
					return err
				}
				rejections, err := store.Rejections(c.Context(), report)
				if err != nil {
					return err
				}
				if len(versions) == 0 && len(rejections) == 0 {
					return fmt.Errorf("%s: %w", report, reportstore.ErrNotFound)
				}
				if asJSON {
					return historyJSON(c.OutOrStdout(), report, versions, rejections)
				}
				return historyTable(c.OutOrStdout(), versions, rejections)
			})
		},
	}
	nameFlags(c, &report, &queue)
	d.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func historyTable(out io.Writer, versions []reportstore.Version, rejections []reportstore.Rejection) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tFENCE\tBY\tAT\tBYTES\tNOTE")
	stale := map[int64]bool{}
	for _, v := range reportstore.Regressions(versions) {
		stale[v.Number] = true
	}
	for _, v := range versions {
		note := ""
		if stale[v.Number] {
			note = "written by an earlier owner"
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%d\t%s\n", v.Number, v.Fence, v.Owner, v.PublishedAt.UTC().Format(time.RFC3339), v.Size, note)
	}
	for i := len(rejections) - 1; i >= 0; i-- {
		r := rejections[i]
		fmt.Fprintf(w, "refused\t%d\t%s\t%s\t\t%s\n", r.Fence, r.Owner, r.RejectedAt.UTC().Format(time.RFC3339), rejectionOf(r))
	}
	return w.Flush()
}

func rejectionOf(r reportstore.Rejection) string {
	if errors.Is(r.Err, fence.ErrStaleOwner) {
		return "stale_owner"
	}
	return "conflict"
}

type historyEntry struct {
	Version int64     `json:"version,omitempty"`
	Fence   int64     `json:"fence"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Result  string    `json:"result,omitempty"`
}

func historyJSON(out io.Writer, report string, versions []reportstore.Version, rejections []reportstore.Rejection) error {
	doc := struct {
		Report     string         `json:"report"`
		Versions   []historyEntry `json:"versions"`
		Rejections []historyEntry `json:"rejections"`
	}{report, []historyEntry{}, []historyEntry{}}
	for _, v := range versions {
		doc.Versions = append(doc.Versions, historyEntry{Version: v.Number, Fence: v.Fence, By: v.Owner, At: v.PublishedAt})
	}
	for i := len(rejections) - 1; i >= 0; i-- {
		r := rejections[i]
		doc.Rejections = append(doc.Rejections, historyEntry{Fence: r.Fence, By: r.Owner, At: r.RejectedAt, Result: rejectionOf(r)})
	}
	return json.NewEncoder(out).Encode(doc)
}
