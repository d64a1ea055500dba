package plans_test

import (
	"crypto/md5"
	"fmt"
	"strings"
	"testing"
)

// batch is how many values a sample of many has.
const batch = 100

// samples are values that are in the rows, by the name of their parameter in Go.
var samples = map[string]string{
	"ResourceID": "r/500",
	"Resources":  many(func(i int) string { return fmt.Sprintf("r/%d", i) }),
	"LeaseID":    id("lease/500"),
	"Leases":     many(func(i int) string { return id(fmt.Sprintf("lease/%d", i)) }),
	"RequestID":  id("a new request"),
	"Requests":   many(func(i int) string { return id(fmt.Sprintf("waiting/%d", i)) }),
	"ClientID":   id("client/5"),
	"Fence":      "500",
	"Fences":     many(func(i int) string { return fmt.Sprint(i) }),
	"Tickets":    many(func(i int) string { return fmt.Sprint(i) }),
	"Ids":        many(func(i int) string { return fmt.Sprint(i) }),
	"Queue":      "q/5",
	"Queues":     many(func(i int) string { return fmt.Sprintf("q/%d", i%10) }),
	"CommandKey": "key/500",
	"MaxRows":    "100",
	"MaxJobs":    "10",
	"Result":     "{}",
	"Since":      "2100-01-01",
	"Froms":      "{2000-01-01,2000-01-01,2000-01-01,2000-01-01,2000-01-01}",
}

// byType are values for the other parameters.
var byType = map[string]string{
	"text": "x", "boolean": "true", "uuid": id("x"), "interval": "1 minute", "timestamp with time zone": "2026-01-01",
	"integer": "1", "smallint": "1", "bigint": "1", "bytea": `\x00`, "json": "{}", "jsonb": "{}", "real": "1", "double precision": "1",
}

func many(each func(i int) string) string {
	list := make([]string, batch)
	for i := range list {
		list[i] = each(i + 1)
	}
	return "{" + strings.Join(list, ",") + "}"
}

// id is as md5(...)::uuid.
func id(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }

// sample is an SQL literal for a parameter.
func sample(t *testing.T, s statement, number int, kind string) string {
	t.Helper()
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
