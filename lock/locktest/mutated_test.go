package locktest_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/lock/locktest"
)

// mutations are changes of the front that break a rule, and the case that has
// to notice. The old text must stand in the file exactly once.
var mutations = []struct {
	noticed  string // rule/claim
	file     string // in package lock
	old, new string
}{
	{"L1/many processes count one number exactly", "release.go",
		"\t\t\tw.ready <- o\n\t\t\treturn nil\n", "\t\t\tw.ready <- o\n\t\t\treturn h.giveBack()\n"},
	{"L2/fences grow in the order of the grants, also under load", "queue.go",
		"fence: h.grant.Fence + uint64(q.handed)", "fence: h.grant.Fence"},
	{"L3/a lease that was lost does not disturb its successor", "acquire.go",
		"return string(text[:])", `return "the-same-token-for-all"`},
	{"P1/a slot is held until its Cleanup has returned, also after the end of the caller's context", "acquire.go",
		"parent = context.WithoutCancel(ctx) // P1", "parent = ctx"},
	{"P2/Init, fn and Cleanup run in this order, whatever the end of fn", "slot.go",
		"\terr = s.init()\n\tready = err == nil\n\treturn err\n", "\tready = true\n\treturn nil\n"},
	{"P2/Cleanup runs after a failed Init, whose error is the call's", "slot.go",
		"\tcleaned = true\n", "\t_ = cleaned\n"},
	{"P3/a holder that has lost its slot does not clean it", "slot.go",
		"\tif !s.live() {\n\t\treturn nil, nil\n\t}\n\terr := s.runCleanup()", "\terr := s.runCleanup()"},
	{"P4/a dirty slot is cleaned before it is prepared", "slot.go",
		"if s.found.Left != nil { // P4", "if s.found.Left != nil && false {"},
	{"P7/a process gets the slot again that it had, at rest nine times in ten", "pool.go",
		"r.Pool.Prefer, r.Pool.Avoid = l.lastSlots.of(c.key)", "r.Pool.Prefer, r.Pool.Avoid = -1, -1"},
	{"P8/a Cleanup that fails withdraws its slot until Heal", "slot.go",
		"return s.withdrawn(err.Error()), err", "return &driver.Handback{Status: driver.SlotFree}, err"},
	{"L4/a renewal counts from when it was sent", "renewal.go",
		"\t\th.deadline = deadline\n", "\t\th.deadline = max(deadline, now.add(h.ttl-driver.Margin(h.ttl)))\n"},
	{"L4/a lease whose acquire was answered late ends in time", "hold.go",
		"l.clock.at(g.Deadline),", "now.add(g.TTL - driver.Margin(g.TTL)),"},
	{"L4/a lease whose renewals hang ends before another is granted", "schedule.go",
		"\tat := h.deadline\n", "\tat := h.deadline.add(h.ttl)\n"},
	{"L4/Err shows the end at the deadline, independent of timers", "lease.go",
		"\t\th.lose(h.expiry())\n", ""},
	{"L4/a forced lease ends by push", "hold.go",
		"if h.ended || h.listening != nil ||", "if true || h.ended || h.listening != nil ||"},
	{"L4/a lease without renewal learns of a force too", "schedule.go",
		"\t\t\trenew = append(renew, h)\n", "\t\t\tif !h.grant.NoRenew {\n\t\t\t\trenew = append(renew, h)\n\t\t\t}\n"},
	{"L4/With returns ErrLost for a lost lease, also if fn returned nil", "locker.go",
		"return fmt.Errorf(\"with %q: %w\", key, release)", "return nil"},
	{"L5/a hanging backend does not block Release, which is retried in the background", "release.go",
		"bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)", "bounded, cancel := context.WithTimeout(ctx, 10*driver.CallTimeout)"},
	{"L5/a failed release is retried until it succeeds", "release.go",
		"\tl.cleaner.add(g, until, err)\n\treturn err\n", "\t_, _ = g, until\n\treturn err\n"},
	{"L5/a lease that cannot be released is left to its TTL", "cleaner.go",
		"\t\tif e := c.entries.pop(); e.until > now {\n", "\t\tif e := c.entries.pop(); true {\n\t\t\te.until = now.add(time.Hour)\n"},
	{"L5/the first release of a lost lease returns ErrLost, the second is a no-op", "release.go",
		"\tif l.released {", "\tif false {"},
	{"L6/an acquire whose reply was lost leaves nothing behind", "release.go",
		"\tl.cleaner.add(g, l.clock.now().add(r.TTL), nil)\n", "\t_ = g\n"},
	{"L7/the waiters of one process are served in order", "waiters.go",
		"\tw := ls.first\n\tls.remove(w)\n", "\tw := ls.last\n\tls.remove(w)\n"},
	{"L7/under FIFO the waiters of all processes are served in order", "acquire.go",
		"case c.wait == 0 || c.fifo:", "case c.wait == 0:"},
	{"L7/at most 16 of a process follow one another while another process waits", "queue.go",
		"maxHandOns = 16", "maxHandOns = 32"},
	{"L7/a process hands on its lock for at most 100 ms", "queue.go",
		"turnLength = 100 * time.Millisecond", "turnLength = 10 * time.Second"},
	{"L8/a cancellation at the moment of the grant loses nothing", "queue.go",
		"_ = o.hold.pass()", "_ = o.hold"},
	{"L8/a process without waiters has no ticket", "queue.go",
		"\t\tq.ticket.cancel()\n", ""},
	{"L8/a waiter whose context ends leaves nothing behind and returns the cause", "locker.go",
		"return fmt.Errorf(\"%w: %w\", err, cause)", "return err"},
	{"L10/a thousand waiters of a process are one ticket for other processes", "acquire.go",
		"case c.wait == 0 || c.fifo:", "case true:"},
	{"L10/each lease has its own token and TTL", "queue.go",
		"w.call.kind().handable() && w.call.ttl == q.hold.ttl", "w.call.kind().handable()"},
	{"L10/a pool and a lease without renewal are not handed on", "queue.go",
		"k.slots == 1 && !k.noRenew", "k.slots == 1"},
	{"L10/an outage answers all waiters at once", "queue.go",
		"all = q.waiters.take(t.kind)", "_ = t.kind"},
	{"L11/a panic of fn releases and propagates", "locker.go",
		"\tdefer func() { err = joinLoss(key, err, lease.leave()) }()\n\treturn fn(lease.Context())\n", "\terr = fn(lease.Context())\n\treturn joinLoss(key, err, lease.leave())\n"},
	{"L12/a failed renewal is retried", "renewal.go",
		"\tif errors.Is(r.Err, ErrLost) {\n\t\th.mu.Unlock()\n", "\tif r.Err != nil {\n\t\th.mu.Unlock()\n"},
	{"L12/renewals are retried until the deadline, and the cause shows it", "renewal.go",
		"jitter(min(h.ttl/20, retryAtMost))", "h.ttl"},
	{"L13/only a live lease of the same Locker on the chain counts", "acquire.go",
		"held.hold.locker == l && ", ""},
	{"L13/a second acquire of a key on the same context chain fails at once", "acquire.go",
		"; ok; held, ok = LeaseFrom(held.parent) {", "; ok; ok = false {"},
	{"L14/an invalid key is refused before the driver is called", "options.go",
		"unicode.In(r, unicode.Z, unicode.Cc, unicode.Cf)", "unicode.In(r, unicode.Cc)"},
	{"L15/a different size is reported once with both values", "acquire.go",
		"if _, ok := t.pairs[pair]; ok || now.sub(t.at) < reportPause {", "if false {"},
	{"L16/the holder learns the author and the reason of a force", "hold.go",
		"\t\te := *lost\n", "\t\te := LostError{Cause: lost.Cause}\n"},
	{"L17/Close ends the waiters", "gate.go",
		"\tg.shutNow()\n", ""},
	{"L17/Close lets holders finish", "close.go",
		"left := l.empty(ctx)", "var left error"},
	{"L17/nothing is released before its fn has returned", "close.go",
		"\t\th.lose(&LostError{Cause: Shutdown})\n", "\t\th.lose(&LostError{Cause: Shutdown})\n\t\t_ = h.giveBack()\n"},
	{"L18/leases, cancelled waits and failures leave nothing behind", "queue.go",
		"\t\t\tdelete(qs.byKey, q.key)\n", ""},
	{"L18/the statistics add up", "queue.go",
		"\tdefer l.counters.waiting.Add(-1)\n", ""},
	{"L19/a lease whose context has ended is taken back and reported", "release.go",
		"\th.forgetAt = h.locker.clock.now().add(min(h.ttl/3, maxGrace))\n", "\t_ = maxGrace\n"},
	{"L19/a lease that was garbage collected is taken back and reported", "schedule.go",
		"case !h.idle && h.current() == nil:", "case false:"},
	{"L19/With renews until fn has returned, also when its context has ended", "hold.go",
		"= c.within, lease.fence", "= false, lease.fence"},
	{"L19/values, deadline and end of the context carry over", "context.go",
		"\treturn c.parent.Value(key)\n", "\treturn nil\n"},
	{"L20/a wait ends when it has passed", "queue.go",
		"time.NewTimer(c.left)", "time.NewTimer(2 * c.left)"},
	{"L20/a wait shorter than the round trip gets a free key", "queue.go",
		"if more := qs.unanswered(w, queued); more > 0 {", "if more := qs.unanswered(w, queued); more > time.Hour {"},
	{"L21/a silent backend is not busy", "queue.go",
		"\treturn nil, down\n", "\treturn new(NotAcquiredError), nil\n"},
	{"L21/loss and return of the backend are reported once", "health.go",
		"\tif first {\n\t\th.locker.observe(", "\tif true {\n\t\th.locker.observe("},
	{"L22/a grant past its deadline is released at once", "hold.go",
		"\t\t\th.bury() // L22", "\t\t\t_ = h // L22"},
	{"L10/an outage costs a bounded number of goroutines", "cleaner.go",
		"cleanersAtOnce = 32\n", "cleanersAtOnce = 32_000\n"},
	{"A1/duplicates count once", "several.go",
		"\tkeys = slices.Compact(keys) // A1\n", ""},
	{"A2/after a failure no key is held", "several.go",
		"\t\t\tset.leave() // a failed", "\t\t\t_ = set // a failed"},
	{"A2/one Wait bounds the waits for all keys", "several.go",
		"return max(c.wait-waited, 0)", "return c.wait"},
	{"A2/a hanging backend delays the release of all keys by one second together", "several.go",
		"\t\twork.Go(func() { errs[i] = l.leave() }) // A2\n", "\t\terrs[i] = l.leave()\n"},
	{"A3/calls with the same keys in different orders all succeed", "several.go",
		"\tslices.Sort(keys) ", "\t"},
	{"A4/the context ends with the loss of any lease, and its cause names the key", "several.go",
		"\t\tctx = lease.Context() // A4", "\t\t// A4"},
	{"A4/a panic of fn releases all keys", "several.go",
		"\tdefer func() {\n\t\tfor i, lost", "\terr = fn(set.Context())\n\tfn = func(context.Context) error { return err }\n\tfunc() {\n\t\tfor i, lost"},
	{"A5/of a circle of two the wait that ends first gets ErrDeadlock at once", "circle.go",
		"\treturn n.ends.Compare(m.ends)\n", "\treturn m.ends.Compare(n.ends)\n"},
	{"A5/of a circle of two the wait that ends first gets ErrDeadlock at once", "circle.go",
		"for n.err == nil {", "for false {"},
	{"A5/on a tie the younger wait gives up", "circle.go",
		"return int(m.number) - int(n.number)", "return int(n.number) - int(m.number)"},
	{"A5/work off the chain is in no circle", "context.go",
		"\tif key == (leaseKey{}) {\n\t\treturn nil\n", "\tif false {\n\t\treturn nil\n"},
	{"A5/a pool is in no circle", "circle.go",
		"left == 0 || c.slots > 1", "left == 0"},
	{"A5/a lease that has ended is in no circle", "circle.go",
		"len(waits) == 0 || !lease.holds()", "len(waits) == 0"},
	{"A5/acquisitions in one order cause no report", "circle.go",
		"if key == n.key && w != n {", "if w != n {"},
	{"L19/a wait under a lease ends with the loss of the lease and returns it", "acquire.go",
		"ctx.Err() != nil && !errors.Is(err, ErrNotAcquired):", "ctx.Err() == nil && !errors.Is(err, ErrNotAcquired):"},
}

// Each mutation of the front makes the case fail that is about it. The changed
// file replaces its original for one build of this package's tests, by go's
// -overlay; the tree is not touched.
//
// A build takes two seconds of a processor, so a fifth of the mutations have a
// turn at a scale of 1, from a random one on, and the others say that they had
// none. make mutants gives all of them a turn.
func TestMutatedFrontsAreCaught(t *testing.T) {
	front, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	builds := make(chan struct{}, 2) // at once
	first := rand.IntN(len(mutations))
	turns := locktest.Scaled(len(mutations) / 5)
	for i := range mutations {
		m := mutations[(first+i)%len(mutations)]
		t.Run(m.noticed, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(front, m.file)
			source := mutated(t, file, m.old, m.new)
			if i >= turns {
				t.Log("no turn in this run")
				return
			}
			builds <- struct{}{}
			defer func() { <-builds }()
			bin := buildMutated(t, file, source)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, bin, "-test.run", runPattern("TestFleet/"+m.noticed))
			// A case that counts what has leaked sees nothing in a few leases.
			run.Env = append(os.Environ(), "MEGA_TEST_SCALE=1")
			out, err := run.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestFleet/"+strings.ReplaceAll(m.noticed, " ", "_")+" ") {
				t.Errorf("in %s\n%s\nbecame\n%s\nand nothing was noticed: %v\n%s", m.file, m.old, m.new, err, tail(out))
			}
		})
	}
}

// mutated is the file with before replaced by after.
func mutated(t *testing.T, file, before, after string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), before); n != 1 {
		t.Fatalf("%s has the text to be changed %d times, want once; bring the table up to date:\n%s", file, n, before)
	}
	return strings.Replace(string(source), before, after, 1)
}

// buildMutated builds the tests of this package over a front in which the file
// has another source.
func buildMutated(t *testing.T, file, source string) (bin string) {
	t.Helper()
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(file))
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, changed, []byte(source))
	write(t, overlay, replace)
	bin = filepath.Join(dir, "mutated.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-ldflags", "-s -w", "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutation does not compile: %v\n%s", err, out)
	}
	return bin
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// runPattern is the -test.run that selects exactly the test with name.
func runPattern(name string) string {
	parts := strings.Split(strings.ReplaceAll(name, " ", "_"), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func tail(out []byte) []byte { return out[max(0, len(out)-2000):] }
