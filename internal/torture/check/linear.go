package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// forever is the return of an operation of which nobody knows when it was over.
const forever = math.MaxInt64

// searchTime bounds the search for an order. That none was found in that time is told as a violation:
// a check that did not come to its end must not look like one that found nothing.
const searchTime = time.Minute

// An operation is one step of a model: what it does to a state, and the record that it stands for.
type operation[S comparable] struct {
	from, to int64 // it took effect between these times
	step     func(S) (S, bool)
	record   any
}

// linearize looks for an order of the operations, each within its time, in which every step is
// allowed. Where there is none it returns the step that cannot be placed, after those that led to the
// state that does not allow it.
func linearize[S comparable](initial S, operations []operation[S]) (slice []any, ok bool) {
	history := make([]porcupine.Operation, len(operations))
	for i, o := range operations {
		history[i] = porcupine.Operation{Input: o, Call: o.from, Return: max(o.from, o.to)}
	}
	model := porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			next, ok := input.(operation[S]).step(state.(S))
			return ok, next
		},
		Equal: func(a, b any) bool { return a == b },
	}
	result, info := porcupine.CheckOperationsVerbose(model, history, searchTime)
	switch result {
	case porcupine.Ok:
		return nil, true
	case porcupine.Illegal:
		return stuck[S](history, info), false
	default:
		return []any{fmt.Sprintf("undecided after %v, with %d operations", searchTime, len(operations))}, false
	}
}

// led is how many steps before the one that cannot be placed are shown.
const led = 4

// stuck finds, in the longest order that was found, the last steps, and the first that is not in it.
func stuck[S comparable](history []porcupine.Operation, info porcupine.LinearizationInfo) []any {
	var longest []int
	for _, order := range info.PartialLinearizations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	placed := make(map[int]bool, len(longest))
	for _, id := range longest {
		placed[id] = true
	}
	first := -1
	for id, o := range history {
		if !placed[id] && (first < 0 || o.Return < history[first].Return) {
			first = id
		}
	}
	var slice []any
	for _, id := range append(slices.Clone(longest[max(0, len(longest)-led):]), first) {
		if id >= 0 && id < len(history) {
			slice = append(slice, history[id].Input.(operation[S]).record)
		}
	}
	return slice
}
