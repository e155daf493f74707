package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
)

const bound = 20 * time.Second

// Hand-written histories: times are small numbers, deadlines too.

func grant(client string, call, ret int64, token string, fence uint64, until int64) history.Op {
	return history.Op{
		Client: client, Kind: history.Acquire, Key: "k", Slots: 1, Call: call, Return: ret,
		Outcome: history.OK, Token: token, Fence: fence, Deadline: until,
	}
}

func refused(client string, call, ret int64) history.Op {
	return history.Op{Client: client, Kind: history.Acquire, Key: "k", Slots: 1, Call: call, Return: ret, Outcome: history.Busy}
}

func cutOff(client string, call int64) history.Op {
	return history.Op{Client: client, Kind: history.Acquire, Key: "k", Slots: 1, Call: call, Return: history.Never, Outcome: history.Unknown}
}

func release(client string, call, ret int64, token string, o history.Outcome) history.Op {
	return history.Op{Client: client, Kind: history.Release, Key: "k", Call: call, Return: ret, Token: token, Outcome: o}
}

func extend(client string, call, ret int64, token string, o history.Outcome, until int64) history.Op {
	return history.Op{Client: client, Kind: history.Extend, Key: "k", Call: call, Return: ret, Token: token, Outcome: o, Deadline: until}
}

func event(kind history.Kind, call, ret int64) history.Op {
	return history.Op{Client: "operator", Kind: kind, Key: "k", Call: call, Return: ret, Outcome: history.OK}
}

func inSlot(op history.Op, slot, slots int) history.Op {
	op.Slot, op.Slots = slot, slots
	return op
}

func found(op history.Op, what string) history.Op { op.Found = what; return op }

func back(op history.Op, status lock.SlotStatus) history.Op { op.Handback = status; return op }

func TestServerHistories(t *testing.T) {
	checkServer(t, []serverHistory{
		{"one after the other", []history.Op{
			grant("a", 1, 2, "A", 1, 100), release("a", 3, 4, "A", history.OK), grant("b", 5, 6, "B", 2, 100),
		}, true},
		{"while it is held", []history.Op{
			grant("a", 1, 2, "A", 1, 100), grant("b", 3, 4, "B", 2, 100),
		}, false},
		{"after it expired", []history.Op{
			grant("a", 1, 2, "A", 1, 100), grant("b", 3, 101, "B", 2, 200),
		}, true},
		{"just before it could expire", []history.Op{
			grant("a", 1, 2, "A", 1, 100), grant("b", 3, 99, "B", 2, 200),
		}, false},
		{"before an extended lease could expire", []history.Op{
			grant("a", 1, 2, "A", 1, 100), extend("a", 3, 4, "A", history.OK, 200), grant("b", 5, 150, "B", 2, 300),
		}, false},
		{"release and acquire at once, in any order of their replies", []history.Op{
			grant("a", 1, 2, "A", 1, 100), release("a", 3, 9, "A", history.OK), grant("b", 3, 5, "B", 2, 100),
		}, true},
		{"a fence that stays", []history.Op{
			grant("a", 1, 2, "A", 7, 100), release("a", 3, 4, "A", history.OK), grant("b", 5, 6, "B", 7, 100),
		}, false},
		{"a fence that falls", []history.Op{
			grant("a", 1, 2, "A", 7, 100), release("a", 3, 4, "A", history.OK), grant("b", 5, 6, "B", 6, 100),
		}, false},
		{"busy while it is held", []history.Op{
			grant("a", 1, 2, "A", 1, 100), refused("b", 3, 4),
		}, true},
		{"busy although it is free", []history.Op{
			grant("a", 1, 2, "A", 1, 100), release("a", 3, 4, "A", history.OK), refused("b", 5, 6),
		}, false},
		{"busy because of somebody who waits too", []history.Op{
			grant("a", 1, 2, "A", 1, 100), release("a", 3, 4, "A", history.OK), refused("b", 5, 7), refused("c", 6, 8),
		}, true},
		{"an acquire of unknown outcome may have it", []history.Op{cutOff("a", 1), refused("b", 5, 6)}, true},
		{"an acquire of unknown outcome may not have it", []history.Op{
			cutOff("a", 1), grant("b", 5, 6, "B", 2, 100), release("b", 7, 8, "B", history.OK), grant("c", 9, 10, "C", 3, 100),
		}, true},
		{"a release of unknown outcome may happen later", []history.Op{
			grant("a", 1, 2, "A", 1, 100), release("a", 3, history.Never, "A", history.Unknown),
			refused("b", 4, 5), grant("b", 6, 7, "B", 2, 100),
		}, true},
		{"a release of unknown outcome happens once", []history.Op{
			grant("a", 1, 2, "A", 1, 100), release("a", 3, history.Never, "A", history.Unknown),
			grant("b", 6, 7, "B", 2, 100), grant("c", 8, 9, "C", 3, 100),
		}, false},
		{"a stale release that succeeds", []history.Op{
			grant("a", 1, 2, "A", 1, 10), grant("b", 11, 12, "B", 2, 100), release("a", 13, 14, "A", history.OK),
		}, false},
		{"a stale release that is told so", []history.Op{
			grant("a", 1, 2, "A", 1, 10), grant("b", 11, 12, "B", 2, 100), release("a", 13, 14, "A", history.Lost),
			release("b", 15, 16, "B", history.OK),
		}, true},
		{"a stale release that ends its successor", []history.Op{
			grant("a", 1, 2, "A", 1, 10), grant("b", 11, 12, "B", 2, 100), release("a", 13, 14, "A", history.Lost),
			grant("c", 15, 16, "C", 3, 100),
		}, false},
		{"a stale extend that succeeds", []history.Op{
			grant("a", 1, 2, "A", 1, 10), grant("b", 11, 12, "B", 2, 100), extend("a", 13, 14, "A", history.OK, 200),
		}, false},
		{"lost before its time", []history.Op{
			grant("a", 1, 2, "A", 1, 100), release("a", 3, 4, "A", history.Lost),
		}, false},
		{"lost by the holder's clock and given back, before its time by the server's", []history.Op{
			grant("a", 1, 2, "A", 1, 100), extend("a", 3, 20, "A", history.Lost, 10), grant("b", 4, 12, "B", 2, 200),
		}, true},
		{"lost by the holder's clock and kept by the server's", []history.Op{
			grant("a", 1, 2, "A", 1, 100), extend("a", 3, 20, "A", history.Lost, 10), refused("b", 21, 22),
		}, true},
		{"granted to another before the holder's clock said so", []history.Op{
			grant("a", 1, 2, "A", 1, 100), extend("a", 3, 20, "A", history.Lost, 10), grant("b", 4, 9, "B", 2, 200),
		}, false},
		{"lost by force", []history.Op{
			grant("a", 1, 2, "A", 1, 100), event(history.Force, 3, 4), grant("b", 5, 6, "B", 2, 100),
			release("a", 7, 8, "A", history.Lost),
		}, true},
		{"a release after a force that succeeds", []history.Op{
			grant("a", 1, 2, "A", 1, 100), event(history.Force, 3, 4), release("a", 7, 8, "A", history.OK),
		}, false},
		{"forgotten by the server", []history.Op{
			grant("a", 1, 2, "A", 1, 100), event(history.Forget, 3, 4), grant("b", 5, 6, "B", 2, 100),
			extend("a", 7, 8, "A", history.Lost, 0),
		}, true},
		{"perhaps not forgotten by the server", []history.Op{
			grant("a", 1, 2, "A", 1, 100), event(history.Forget, 3, 4), extend("a", 7, 8, "A", history.OK, 200),
			release("a", 9, 10, "A", history.OK),
		}, true},
		{"a server that forgets still may not grant twice afterwards", []history.Op{
			event(history.Forget, 1, 2), grant("a", 3, 4, "A", 1, 100), grant("b", 5, 6, "B", 2, 100),
		}, false},
		{"two slots of two", []history.Op{
			inSlot(grant("a", 1, 2, "A", 1, 100), 0, 2), inSlot(grant("b", 3, 4, "B", 2, 100), 1, 2), inSlot(refused("c", 5, 6), 0, 2),
		}, true},
		{"one slot twice", []history.Op{
			inSlot(grant("a", 1, 2, "A", 1, 100), 1, 2), inSlot(grant("b", 3, 4, "B", 2, 100), 1, 2),
		}, false},
		{"a slot outside the pool", []history.Op{inSlot(grant("a", 1, 2, "A", 1, 100), 2, 2)}, false},
		{"busy although a slot is free", []history.Op{
			inSlot(grant("a", 1, 2, "A", 1, 100), 0, 2), inSlot(refused("c", 5, 6), 0, 2),
		}, false},
	})
}

const (
	dirty     = lock.LeftExpired
	clean     = lock.SlotFree
	withdrawn = lock.SlotWithdrawn
)

// Slots with a state, of a pool of one.
func TestServerHistoriesOfSlots(t *testing.T) {
	first, second := found(grant("a", 1, 2, "A", 1, 100), lock.LeftUnknown), grant("b", 5, 6, "B", 2, 200)
	leaves := release("a", 3, 4, "A", history.OK)
	checkServer(t, []serverHistory{
		{"a new slot that is clean", []history.Op{found(first, history.Clean)}, false},
		{"a clean slot that was handed back", []history.Op{first, back(leaves, clean), found(second, history.Clean)}, true},
		{"a slot that was handed back clean and counts as released", []history.Op{first, back(leaves, clean), found(second, lock.LeftReleased)}, false},
		{"a clean slot that was granted to a call that was never answered", []history.Op{first, back(leaves, clean), found(second, dirty)}, true},
		{"a clean slot that was left dirty", []history.Op{first, leaves, found(second, history.Clean)}, false},
		{"a clean slot after its lease has expired", []history.Op{first, found(grant("b", 5, 101, "B", 2, 200), history.Clean)}, false},
		{"a dirty slot after its lease has expired", []history.Op{first, found(grant("b", 5, 101, "B", 2, 200), dirty)}, true},
		{"a clean slot after a force", []history.Op{first, event(history.Force, 3, 4), found(second, history.Clean)}, false},
		{"a handback that was lost by the holder's clock may arrive", []history.Op{
			first, back(until(release("a", 3, 20, "A", history.Lost), 10), clean), found(grant("b", 21, 22, "B", 2, 200), history.Clean),
		}, true},
		{"a handback that was refused", []history.Op{
			first, event(history.Force, 3, 4), back(until(release("a", 5, 6, "A", history.Lost), 100), clean),
			found(grant("b", 7, 8, "B", 2, 200), history.Clean),
		}, false},
		{"a handback of unknown outcome may have happened", []history.Op{
			first, back(release("a", 3, history.Never, "A", history.Unknown), clean), found(second, history.Clean),
		}, true},
		{"a withdrawn slot", []history.Op{first, back(leaves, withdrawn), refused("b", 5, 6)}, true},
		{"a withdrawn slot that is granted", []history.Op{first, back(leaves, withdrawn), found(second, dirty)}, false},
		{"a withdrawn slot that is granted as clean", []history.Op{first, back(leaves, withdrawn), found(second, history.Clean)}, false},
		{"a healed slot", []history.Op{
			first, back(leaves, withdrawn), event(history.Heal, 5, 6), found(grant("b", 7, 8, "B", 2, 200), lock.LeftHealed),
		}, true},
		{"a healed slot that is clean", []history.Op{
			first, back(leaves, withdrawn), event(history.Heal, 5, 6), found(grant("b", 7, 8, "B", 2, 200), history.Clean),
		}, false},
		{"a Heal of a clean slot", []history.Op{
			first, back(leaves, clean), event(history.Heal, 5, 6), found(grant("b", 7, 8, "B", 2, 200), history.Clean),
		}, true},
		{"a clean slot that the server has forgotten", []history.Op{
			first, back(leaves, clean), event(history.Forget, 4, 5), found(grant("b", 6, 7, "B", 2, 200), lock.LeftUnknown),
		}, true},
		{"a dirty slot that the server has forgotten", []history.Op{
			first, leaves, event(history.Forget, 4, 5), found(grant("b", 6, 7, "B", 2, 200), history.Clean),
		}, false},
		{"a slot beside it", []history.Op{
			inSlot(first, 0, 2), back(leaves, clean), found(inSlot(second, 1, 2), history.Clean),
		}, false},
		{"a grant of another slot that is older", []history.Op{
			inSlot(grant("a", 1, 2, "A", 5, 100), 0, 2), inSlot(grant("b", 3, 4, "B", 4, 100), 1, 2),
		}, true},
	})
}

func until(op history.Op, deadline int64) history.Op { op.Deadline = deadline; return op }

type serverHistory struct {
	name string
	ops  []history.Op
	ok   bool
}

func checkServer(t *testing.T, tests []serverHistory) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := history.History{Ops: test.ops}.CheckServer(bound)
			if (err == nil) != test.ok {
				t.Errorf("CheckServer = %v, want ok = %v", err, test.ok)
			}
		})
	}
}

func TestExplanationShowsTheStateAndTheConflict(t *testing.T) {
	h := history.History{Ops: []history.Op{grant("a", 1, 2, "A", 1, 100), grant("b", 3, 4, "B", 2, 100)}}
	err := h.CheckServer(bound)
	if err == nil {
		t.Fatal("two holders at once passed")
	}
	for _, want := range []string{`key "k": 1 of 2 operations fit`, "slot 0: lease A fence 1", `does not fit: b: acquire "k" lease B`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the explanation lacks %q:\n%v", want, err)
		}
	}
}

func TestHistoryThatIsTooLargeIsRefused(t *testing.T) {
	var many history.History
	for i := range history.MaxOps + 1 {
		many.Ops = append(many.Ops, refused("a", int64(i), int64(i)))
	}
	var wide history.History
	for i := range history.MaxClients + 1 {
		wide.Ops = append(wide.Ops, refused(fmt.Sprint(i), 1, 2))
	}
	for _, h := range []history.History{many, wide} {
		if err := h.CheckServer(bound); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("CheckServer = %v, want the bounds", err)
		}
	}
}

// What cannot be decided in time is not called right.
func TestCheckIsBoundedInTime(t *testing.T) {
	var h history.History
	for i := range 400 { // all at once, and two of them get the same slot
		h.Ops = append(h.Ops, history.Op{
			Client: fmt.Sprint(i % 8), Kind: history.Acquire, Key: "k", Slots: 400, Slot: i % 399, Call: 1, Return: 1000,
			Outcome: history.OK, Token: fmt.Sprint(i), Fence: uint64(1 + i), Deadline: 2000,
		})
	}
	start := time.Now()
	err := h.CheckServer(200 * time.Millisecond)
	if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "not decided") || took > 10*time.Second {
		t.Errorf("CheckServer = %v after %v, want an error within the bound", err, took)
	}
}
