package bustest_test

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

	"github.com/megaframework/mega/bus/bustest"
)

// mutations are changes of the front that break a rule, and the case that has
// to notice. The old text must stand in the file exactly once.
var mutations = []struct {
	noticed  string // rule/claim
	file     string // in package bus
	old, new string
}{
	{"S1/every call refuses a bad subject before the driver is called, and the bus continues", "subject.go",
		"c := byte('!'); c <= '~'; c++", "c := byte(' '); c <= '~'; c++"},
	{"S1/wildcards are for subscriptions alone", "subject.go",
		"case (token == \"*\" || token == \">\") && !wild:", "case false:"},
	{"S5/a key whose handler hangs delays no other key", "runner.go",
		"return s.concurrency == 1 && s.orderBy == nil && s.onFull != DropOldest", "return true"},
	{"S6/data may be reused as soon as Publish has returned", "compose.go",
		"\tm.Data = b.own(data)\n", "\tm.Data = data\n"},
	{"S6/Publish with an ended context sends nothing and returns its error", "compose.go",
		"if ctx.Err() != nil {", "if false {"},
	{"S8/queued messages are discarded and counted, and running handlers may finish", "runner.go",
		"s.stopped.Load() || ", ""},
	{"S8/Drain handles queued messages and accepts no new ones", "sub.go",
		"\t\ts.phase = emptying\n", "\t\ts.phase = emptying\n\t\ts.discard()\n"},
	{"S8/the backend forgets a subscription that has ended", "sub.go",
		"\t_ = i.End(ctx)\n", "\t_ = ctx\n"},
	{"S9/a handler that changes the data is reported if data is checked", "runner.go",
		"if !bytes.Equal(data, before) {", "if false && !bytes.Equal(data, before) {"},
	{"S10/drops are counted exactly, reported, and marked at their position", "runner.go",
		"d.msg.Missed, s.lost = s.lost, 0", "s.lost = 0"},
	{"S10/Missed marks the position of the loss", "sink.go", // Missed on the wrong message
		"\t\ts.queue.mark(1)\n", "\t\ts.loseNext(1)\n"},
	{"S10/Missed marks the position of the loss", "queue.go", // DropOldest: the mark at the end
		"\tm.next, q.first = q.first, m\n\tif q.last == nil {\n\t\tq.last = m\n\t}\n", "\tq.link(m)\n"},
	{"S10/Missed marks the position of the loss", "runner.go", // lost with a message that expires
		"\t\ts.keepLoss(d.msg.Missed)\n", ""},
	{"S10/adjacent losses are one mark, which takes no room in the buffer", "queue.go",
		"if q.last != nil && q.last.mark {", "if false {"},
	{"S10/OnGap is a barrier at the position of the loss", "gap.go",
		"if g.running {", "if false {"},
	{"S10/OnGap is a barrier at the position of the loss", "gap.go",
		"(s.busy > 0 || ", "(false || "},
	{"S10/OnGap is a barrier at the position of the loss", "lanes.go",
		" || s.isAtBarrier()", ""},
	{"S10/after an outage OnGap begins when the subscription is active again", "runner.go",
		"\tcase s.onGap != nil && s.queue.atMark():\n\t\treturn s.lanes.len == 0\n", ""},
	{"S10/a failed OnGap is called again, with the losses in between", "gap.go",
		"merged(merged(g.owed, missed), g.due), 0", "0, 0"},
	{"S10/a failed OnGap is called again, with the losses in between", "gap.go",
		"\tg.pausing = true\n", ""},
	{"S10/a failed OnGap is called again, with the losses in between", "gap.go",
		"err = &PanicError{Value: recover(), Stack: debug.Stack()}", "recover(); _ = debug.Stack"},
	{"S10/a copy that OnGap fetches is correct when idle, with every policy", "sink.go",
		"\t\ts.queue.mark(1)\n", "\t\ts.loseNext(1)\n"},
	{"S10/a copy that OnGap fetches is correct when idle, with every policy", "sub.go", // no repair after Terminate
		"\t\ts.gap.due = -1\n", ""},
	{"S10/after an outage OnGap begins when the subscription is active again", "gap.go",
		" || g.due < 0 && s.phase == active && s.bus.link.down.Load()", ""},
	{"S10/after an outage OnGap begins when the subscription is active again", "front.go",
		"\tfor _, s := range b.list() {\n\t\ts.wake()\n\t}\n", ""},
	{"S10/a buffer is also bounded in bytes, and so is its memory", "sink.go",
		" && bytes+weight <= s.maxBytes", " && bytes+weight >= 0"},
	{"S10/DropOldest keeps the newest", "sink.go",
		"if s.onFull != DropOldest {", "if true {"},
	{"S10/Terminate ends the subscription", "sink.go",
		"if s.onFull != Terminate {", "if true {"},
	{"S10/drops are reported at once, and then at most once a second", "drops.go",
		"if s.drops.armed || ", "if "},
	{"S10/an observer that blocks, publishes or panics delays nothing", "events.go",
		"\t\tt.notifying = b.group.Go(b.notifyAll)\n", "\t\tb.observe(e)\n"},
	{"S10/a request that finds the responder's buffer full is refused at once", "sink.go",
		"\ts.bus.refuse(d, ErrOverloaded)\n", ""},
	{"S11/a bad name is refused before the driver is called", "subject.go",
		"if !plain[name[i]] && name[i] != '.' {", "if false {"},
	{"S12/a request without a deadline has the default, and the responder has the remaining time", "request.go",
		"if m.Deadline.IsZero() || deadline.Before(m.Deadline) {", "if true {"},
	{"S12/a slow responder causes a timeout, in time", "request.go",
		"return fmt.Errorf(\"%w: %w\", ErrTimeout, context.DeadlineExceeded)", "return context.DeadlineExceeded"},
	{"S12/a cancelled caller gets its context's error, with the cause", "errors.go",
		"return fmt.Errorf(\"%w: %w\", err, cause)", "return err"},
	{"S12/errors of the responder arrive with code and text, without a stack", "respond.go",
		"\"panic\", \"the responder panicked\"", "\"panic\", err.Error()"},
	{"S12/late and second answers are dropped and counted", "request.go",
		"\tcs.late++\n", ""},
	{"S12/concurrent requests, half of them cancelled, never get another request's answer", "request.go",
		"\tdelete(cs.byID, c.id)\n", ""},
	{"S12/requests that are discarded are refused", "sub.go",
		"\t\ts.bus.refuse(d, ErrTerminated)\n", ""},
	{"S13/a responder handles 64 requests concurrently, a subscription one message", "options.go",
		"respondConcurrency = 64", "respondConcurrency = 65"},
	{"S13/a responder whose every handler waits for itself is reported before the deadline", "asking.go",
		"int(s.asking.Add(1)) == s.concurrency", "false"},
	{"S13/exactly one responder answers a request", "options.go",
		"o.group, o.concurrency = respondGroup, respondConcurrency", "o.concurrency = respondConcurrency"},
	{"S14/RequestMany ends after Count answers", "many.go",
		"o.count == 0 || n < o.count", "true"},
	{"S14/RequestMany ends when answers stall, and a slow consumer is no stall", "many.go",
		"if n > 0 && o.stall > 0 {", "if false {"},
	{"S14/RequestMany ends when too many answers wait for the consumer", "request.go",
		"len(c.answers) >= maxAnswers || ", ""},
	{"S14/RequestMany ends when too many answers wait for the consumer", "request.go",
		" || len(c.answers) > 0 && c.bytes+size > maxAnswerBytes", ""},
	{"S16/answers carry headers", "respond.go",
		"a.Data, a.Header = s.bus.own(d.answer.data), d.answer.header", "a.Data = s.bus.own(d.answer.data)"},
	{"S16/answers carry headers", "msg.go",
		"a.Header = cloneHeader(d.answer.header)", "_ = cloneHeader"},
	{"S26/Close inside a handler does not wait for that handler", "close.go",
		"\tb.excuse(context.Background())\n", ""},
	{"S26/Close inside a handler does not wait for that handler", "close.go",
		"s.awaitUnlessExcused(grace.Done())", "_, _ = s, grace"},
	{"S14/RequestMany ends at the end marker", "many.go",
		"case m.End:", "case false:"},
	{"S14/RequestMany ends at its deadline, without an error if there were answers", "many.go",
		"if answers > 0 && errors.Is(err, ErrTimeout) {", "if answers < 0 && errors.Is(err, ErrTimeout) {"},
	{"S14/RequestMany ends when the consumer breaks, and leaves nothing behind", "many.go",
		"\tdefer b.calls.end(c)\n", ""},
	{"S15/a handler that ends its goroutine does not end the subscription", "runner.go",
		"\tgo s.run(r)\n}", "\t_ = r\n}"},
	{"S15/an error is reported with subject, pattern and message, and affects no other message", "runner.go",
		"\ts.bus.notify(HandlerFailed{SubID: s.subID(), Msg: &d.msg, Err: err})\n", ""},
	{"S15/a panic in middleware or in OrderBy affects only its message", "lanes.go",
		"s.finish(d, &PanicError{Value: recover(), Stack: debug.Stack()})", "recover(); _ = debug.Stack"},
	{"S15/a stuck handler is reported by name", "watchdog.go",
		"age >= limit && age-r.seen.reported >= limit", "false"},
	{"S16/bad headers are refused before the driver is called", "header.go",
		"strings.ContainsAny(v, \"\\r\\n\\x00\")", "false"},
	{"S16/headers at the bounds are accepted, larger ones are refused", "header.go",
		"if size > MaxHeader {", "if false {"},
	{"S16/trace and baggage travel from handler to handler", "compose.go",
		"case d != nil && d.msg.Header != nil:", "case false:"},
	{"S17/the largest message is accepted, one byte more is refused, and the bus continues", "compose.go",
		"m.CheckSize(b.config.MaxPayload)", "m.CheckSize(b.config.MaxPayload + 1)"},
	{"S17/an answer that is too large is an error of the responder", "respond.go",
		"if err = s.bus.checkSize(&a); err == nil {", "if err = nil; err == nil {"},
	{"S18/nil and empty data arrive empty, not nil", "compose.go",
		"\t\treturn []byte{}\n", "\t\treturn nil\n"},
	{"S20/the handler's context ends with Close", "close.go",
		"\t\ts.cancel(ErrClosed)\n", ""},
	{"S20/the handler's context does not end when draining begins", "close.go",
		"\tsubs := b.list()\n\tb.excuse(ctx)\n", "\tsubs := b.list()\n\tfor _, s := range subs {\n\t\ts.cancel(ErrDraining)\n\t}\n"},
	{"S21/under load all accepted messages are handled, and handlers publish, request and reply to the end", "close.go",
		"range []driver.Kind{driver.Event, driver.Request}", "range []driver.Kind{driver.Request, driver.Event}"},
	{"S21/Drain inside a handler returns", "close.go",
		"\tb.excuse(ctx)\n", ""},
	{"S21/a drain refuses new subscriptions and still answers requests", "close.go",
		"\tcase draining:\n\t\treturn ErrDraining\n", ""},
	{"S22/after Close every call is ErrClosed at once", "bus.go",
		"return fmt.Errorf(\"flush: %w\", ErrClosed)", "return nil"},
	{"S22/Close ends a thousand requests in flight", "close.go",
		"\tb.calls.close()\n", ""},
	{"S23/requests in flight fail at once, and so do those made while the backend is away", "front.go",
		"\tb.calls.failAll(disconnected(err))\n", ""},
	{"S23/the state is visible, and reported once", "front.go",
		"\tl.cuts++\n", ""},
	{"S23/publishes during an outage arrive in order, after one gap mark per subscription", "sink.go",
		"\t\ts.queue.mark(lost) // S10\n", ""},
	{"S24/a message that expires before its handler starts is dropped and counted", "runner.go",
		"case isExpired(d.deadline):", "case false:"},
	{"S25/a chain of more than 32 hops is a cycle", "compose.go",
		"if d.hops >= MaxHops {", "if d.hops > MaxHops {"},
	{"S25/options out of bounds are refused before the driver is called", "options.go",
		"o.concurrency < 1 || ", ""},
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
	turns := bustest.Scaled(len(mutations) / 5)
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
			run := exec.CommandContext(ctx, bin, "-test.run", runPattern("TestFleet/"+m.noticed), "-test.timeout", "30s")
			run.Env = append(os.Environ(), "MEGA_TEST_SCALE=1") // what breaks now and then is not seen in a few messages
			out, err := run.CombinedOutput()
			if err == nil || !noticed(string(out), m.noticed) {
				t.Errorf("in %s\n%s\nbecame\n%s\nand nothing was noticed: %v\n%s", m.file, m.old, m.new, err, tail(out))
			}
		})
	}
}

// noticed reports whether the case has failed, or that it hangs: a mutant may spin
// where fake time stands still.
func noticed(out, name string) bool {
	test := "TestFleet/" + strings.ReplaceAll(name, " ", "_")
	return strings.Contains(out, "--- FAIL: "+test+" ") || strings.Contains(out, "panic: ") && strings.Contains(out, test)
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
