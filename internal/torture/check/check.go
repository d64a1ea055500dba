// Package check holds the checkers of a history. Each is a small file and looks at one promise; none
// knows how the history came about.
package check

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pglease/pglease/internal/torture/history"
)

// A Violation is one promise that a history breaks, with the records that show it.
type Violation struct {
	Checker  string `json:"checker"`
	Resource string `json:"resource"`
	Text     string `json:"text"`
	Slice    []any  `json:"slice"` // the smallest part of the history that shows it
}

// String prints the slice line by line.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s\n", v.Checker, v.Resource, v.Text)
	for _, record := range v.Slice {
		line, err := json.Marshal(record)
		if err != nil {
			line = fmt.Append(nil, err)
		}
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

// A Result is what all checkers come to.
type Result struct {
	Violations []Violation
	Unknown    int // calls whose outcome their caller did not know
	Resolved   int // of those, how many the records settle
	Forgotten  int // acknowledged and then lost with a database that failed
}

// most is how many violations one checker tells of one history: the first ones matter.
const most = 3

// A Checker looks at one promise.
type Checker struct {
	Name string
	Run  func(*history.History) []Violation
}

// Checkers are all of them.
var Checkers = []Checker{
	{"fences", fences},
	{"accepted", accepted},
	{"overlap", overlap},
	{"unbroken", unbroken},
	{"granted", granted},
	{"successor", successor},
	{"guard", guard},
	{"queue", queue},
	{"truth", truth},
	{"locks", locks},
	{"registers", registers},
}

// All runs every checker.
func All(h *history.History) Result {
	var r Result
	r.Unknown, r.Resolved, r.Forgotten = settled(h)
	for _, c := range Checkers {
		found := c.Run(h)
		for _, v := range found[:min(len(found), most)] {
			v.Checker = c.Name
			r.Violations = append(r.Violations, v)
		}
	}
	return r
}

func violation(resource, text string, slice ...any) Violation {
	return Violation{Resource: resource, Text: text, Slice: slice}
}
