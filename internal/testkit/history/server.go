package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The bounds of a history that CheckServer accepts: the search is exponential
// in the number of concurrent operations.
const (
	MaxClients = 8
	MaxOps     = 2000
)

// CheckServer returns an error if no server that executes one operation at a
// time could have given these answers, with an explanation. It returns a
// different error if the search takes longer than within.
func (h History) CheckServer(within time.Duration) error {
	ops, err := h.operations()
	if err != nil {
		return err
	}
	m := model()
	result, info := porcupine.CheckOperationsVerbose(m, ops, within)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("check a history of %d operations: not decided within %v", len(ops), within)
	}
	return fmt.Errorf("no lock server could have given these answers:\n%s", explain(m.Partition(ops), info))
}

// operations leaves out all acquires of unknown outcome of a key except the
// first: they change nothing in the model, and each would double the search.
func (h History) operations() ([]porcupine.Operation, error) {
	clients := map[string]int{}
	var ops []porcupine.Operation
	for _, op := range h.Ops {
		if op.Kind != Forget {
			clients[op.Client] = len(clients)
		}
	}
	if len(clients) > MaxClients || len(h.Ops) > MaxOps {
		return nil, fmt.Errorf("check a history: %d clients and %d operations, want at most %d and %d",
			len(clients), len(h.Ops), MaxClients, MaxOps)
	}
	inOrder := History{Ops: slices.SortedFunc(slices.Values(h.Ops), func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })}
	contended, lost := inOrder.contended(), map[string]bool{}
	for i, op := range inOrder.Ops {
		if op.Kind == Acquire && op.Outcome == Unknown {
			if lost[op.Key] {
				continue
			}
			lost[op.Key] = true
		}
		ops = append(ops, porcupine.Operation{
			ClientId: clients[op.Client], Input: input{op, contended[i]}, Call: op.Call, Return: op.Return,
		})
	}
	return ops, nil
}

// contended reports for each operation whether another client's acquire of the
// same key was in progress at the same time.
func (h History) contended() []bool {
	found := make([]bool, len(h.Ops))
	for i, op := range h.Ops {
		found[i] = slices.ContainsFunc(h.Ops, func(o Op) bool {
			return o.Kind == Acquire && o.Key == op.Key && o.Client != op.Client &&
				o.Call <= op.Return && o.Return >= op.Call
		})
	}
	return found
}

// explain shows, for each key without a solution, the longest possible history
// and the operations that cannot follow. Every failing key has its own partial
// history; a key whose history is complete is correct.
func explain(parts [][]porcupine.Operation, info porcupine.LinearizationInfo) string {
	var found []string
	for _, partial := range info.PartialLinearizationsOperations() {
		told := longest(partial)
		if len(told) == 0 {
			continue
		}
		key := told[0].Input.(input).Key
		for _, all := range parts {
			if all[0].Input.(input).Key == key && len(told) < len(all) {
				found = append(found, stuck(key, told, all))
			}
		}
	}
	if len(found) == 0 {
		return "nothing could even be the first operation"
	}
	return strings.Join(found, "\n")
}

func longest(partial [][]porcupine.Operation) (told []porcupine.Operation) {
	for _, p := range partial {
		if len(p) > len(told) {
			told = p
		}
	}
	return told
}

// stuck describes the end of the longest possible history and the remaining
// operations.
func stuck(key string, told, all []porcupine.Operation) string {
	var b strings.Builder
	var s state
	seen := map[Op]bool{}
	for _, op := range told {
		_, s = s.step(op.Input.(input))
		seen[op.Input.(input).Op] = true
	}
	fmt.Fprintf(&b, "key %q: %d of %d operations fit; then it is %v\n", key, len(told), len(all), s)
	for _, op := range told[max(0, len(told)-5):] {
		fmt.Fprintf(&b, "  before: %v\n", op.Input.(input).Op)
	}
	left := 0
	for _, op := range all {
		if in := op.Input.(input); !seen[in.Op] && left < 5 {
			fmt.Fprintf(&b, "  does not fit: %v\n", in.Op)
			left++
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
