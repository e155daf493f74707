package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Read combines the recordings in several files.
func Read(paths ...string) (History, error) {
	b := newBuilder()
	for _, path := range paths {
		if err := b.file(path); err != nil {
			return History{}, fmt.Errorf("read a history: %s: %w", path, err)
		}
	}
	return b.history(), nil
}

// builder matches calls with returns and leases with their ends, in any order.
type builder struct {
	ops    map[opKey]Op
	order  []opKey
	ends   map[string]Op // by token, the Return is when
	gone   map[string]int64
	latest int64
}

type opKey struct {
	process string
	id      int64
}

func newBuilder() *builder {
	return &builder{ops: map[opKey]Op{}, ends: map[string]Op{}, gone: map[string]int64{}}
}

func (b *builder) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was opened for reading
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(whole(lines.Bytes()), &l); err != nil {
			return fmt.Errorf("%.80q: %w", lines.Text(), err)
		}
		b.add(l)
	}
	return lines.Err()
}

// whole returns a line without the beginning of another one, of a process that was
// killed while it wrote: the kernel can end a write at a page of the file.
func whole(text []byte) []byte {
	return text[max(bytes.LastIndex(text, []byte(`{"event":`)), 0):]
}

func (b *builder) add(l line) {
	b.latest = max(b.latest, l.At)
	key := opKey{l.Process, l.ID}
	switch l.Event {
	case called:
		l.Return, l.Outcome = Never, Unknown
		if _, answered := b.ops[key]; !answered {
			b.ops[key] = l.Op
			b.order = append(b.order, key)
		}
	case returned:
		if _, known := b.ops[key]; !known {
			b.order = append(b.order, key)
		}
		b.ops[key] = l.Op
	case ended:
		l.Return = l.At
		b.ends[l.Token] = l.Op
	case gone:
		if _, known := b.gone[l.Process]; !known {
			b.gone[l.Process] = l.At
		}
	}
}

func (b *builder) history() History {
	h := History{}
	released := map[string]int64{}
	for _, key := range b.order {
		op := b.ops[key]
		if op.Outcome == Unknown {
			op.Return = Never
		}
		h.Ops = append(h.Ops, op)
		if op.Kind == Release {
			released[op.Token] = op.Call
			if op.Deadline != 0 {
				released[op.Token] = min(op.Call, op.Deadline)
			}
		}
	}
	for i, op := range h.Ops {
		if op.Kind == Acquire && op.Outcome == OK {
			h.Beliefs = append(h.Beliefs, b.belief(op, b.order[i].process, released))
		}
	}
	slices.SortFunc(h.Ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	return h
}

// belief computes the period of a lease. A lease without a recorded end was
// believed in until its process was gone.
func (b *builder) belief(op Op, process string, released map[string]int64) Belief {
	to := b.latest
	if at, ok := b.gone[process]; ok {
		to = min(to, at)
	}
	if end, ok := b.ends[op.Token]; ok {
		to = min(to, end.Return, end.Deadline)
	}
	if at, ok := released[op.Token]; ok {
		to = min(to, at)
	}
	return Belief{
		Client: op.Client, Key: op.Key, Token: op.Token, Fence: op.Fence, Slot: op.Slot,
		From: op.Return, To: to,
	}
}
