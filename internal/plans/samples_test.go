package plans_test

import (
	"crypto/md5"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// samples are values that are in the rows, by the name of their parameter in Go.
var samples = map[string]string{
	"ResourceID": "r/500",
	"LeaseID":    id("lease/500"),
	"RequestID":  id("a new request"),
	"ClientID":   id("client/5"),
	"Fence":      "500",
	"Queue":      "q/5",
	"Outbox":     "o/5",
	"CommandKey": "key/500",
	"MaxRows":    "100",
	"LeaseTable": "pglease.resource_lease",
	"MaxJobs":    "10",
	"Most":       "0",
	"Result":     "{}",
	"Since":      "2100-01-01",
	"Froms":      "{2000-01-01,2000-01-01,2000-01-01,2000-01-01,2000-01-01}",
}

// batches are the values of parameters that name many rows: the first, the second, and so on.
var batches = map[string]func(i int) string{
	"Resources":     func(i int) string { return fmt.Sprintf("r/%d", i) },
	"Leases":        func(i int) string { return id(fmt.Sprintf("lease/%d", i)) },
	"Requests":      func(i int) string { return id(fmt.Sprintf("waiting/%d", i)) },
	"Clients":       func(i int) string { return id(fmt.Sprintf("client/%d", i)) },
	"Fences":        strconv.Itoa,
	"Tickets":       strconv.Itoa,
	"Ids":           strconv.Itoa,
	"Queues":        func(i int) string { return fmt.Sprintf("q/%d", i%10) },
	"PartitionKeys": func(i int) string { return fmt.Sprintf("p/%d", i) },
	"UniqueKeys":    func(i int) string { return fmt.Sprintf("u/%d", i) },
	"Priorities":    same("0"),
	"RunAts":        same("2000-01-01"),
	"Delays":        same("0"),
	"MaxAttempts":   same("3"),
	"UniqueFor":     same("0"),
	"UniqueWaits":   same("false"),
	"Payloads":      same("1"),
	"MessageKeys":   func(i int) string { return fmt.Sprintf("k/%d", i) },
	"Topics":        same("topic"),
	"Bodies":        same("x"),
}

// byType are values for the other parameters.
var byType = map[string]string{
	"text": "x", "boolean": "true", "uuid": id("x"), "interval": "1 minute", "timestamp with time zone": "2026-01-01",
	"integer": "1", "smallint": "1", "bigint": "1", "bytea": `\x00`, "json": "{}", "jsonb": "{}", "real": "1", "double precision": "1",
}

func same(value string) func(int) string { return func(int) string { return value } }

func many(n int, each func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = each(i + 1)
	}
	return "{" + strings.Join(list, ",") + "}"
}

// id is as md5(...)::uuid.
func id(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }

// sample is an SQL literal for a parameter. Those that name many rows have batch values.
func sample(t *testing.T, s statement, number int, kind string, batch int) string {
	t.Helper()
	if each, ok := batches[s.params[number]]; ok {
		return "'" + many(batch, each) + "'::" + kind
	}
	value, ok := samples[s.params[number]]
	if !ok {
		element, isArray := strings.CutSuffix(kind, "[]")
		if value, ok = byType[element]; !ok {
			t.Fatalf("%s: no sample of type %s for %s", s.name, kind, s.params[number])
		}
		if isArray {
			value = "{" + `"` + strings.ReplaceAll(value, `\`, `\\`) + `"` + "}"
		}
	}
	return "'" + value + "'::" + kind
}

// isBatched tells whether a statement names many rows by its parameters.
func isBatched(s statement) bool {
	return slices.ContainsFunc(s.params, func(name string) bool { return batches[name] != nil })
}
