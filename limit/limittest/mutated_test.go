package limittest_test

import (
	"testing"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/mutants"
	"github.com/megaframework/mega/limit/limittest"
)

// A driver without defects passes, so that what is caught is the defect, or the
// mutation of the front.
func TestFleet(t *testing.T) {
	limittest.Run(t, new(fleet).harness())
}

// mutations are changes of the front that break a rule, and the case that has to
// notice. The old text must stand in the file exactly once.
var mutations = mutants.Table{
	{"W1/Slack lengthens the window, whose log belongs to the sum", "limit.go",
		"micros(rates[i].Per) + micros(m.Slack)", "micros(rates[i].Per)"},
	{"W1/Slack lengthens the window, whose log belongs to the sum", "inspect.go",
		"s.Rates[i].Per = m.Rates[i].Per // without", "_ = i // without"},
	{"W4/a cost above the smallest N is refused without a call", "options.go",
		"c.cost < 0 || c.cost > m.smallest()", "c.cost < 0"},
	{"W5/calls of a process are served in their order, none early", "queue.go",
		"w.place = w.queue.calls.PushBack(w)\n\tif w.queue.calls.Len() == 1 {\n\t\tclose(w.turn)",
		"if front := w.queue.calls.Front(); front != nil {\n\t\tw.place = w.queue.calls.InsertAfter(w, front)\n\t} else {\n\t\tw.place = w.queue.calls.PushBack(w)\n\t\tclose(w.turn)"},
	{"W5/waiting needs few calls", "turn.go",
		"timer := time.NewTimer(d)", "timer := time.NewTimer(min(d, time.Millisecond))"},
	{"W5/calls of a process are served in their order, none early", "turn.go",
		"if err := t.first(ctx); err != nil {", "if err := error(nil); err != nil {"},
	{"W6/what is known to be too late is refused at once", "turn.go",
		"\tt.request.MaxWait = forever\n\tif t.deadline != 0 {", "\tt.request.MaxWait = forever\n\tif false {"},
	{"W6/what is known to be too late is refused at once", "turn.go",
		"t.deadline == 0 || end < t.deadline {", "t.deadline == 0 {"},
	{"W6/a call behind another one that is known to be too late is refused at once", "turn.go",
		"at > t.deadline {", "at < 0 {"},
	{"W6/the end of the context ends the wait without a trace", "turn.go",
		"if err := l.driver.Withdraw(ctx, t.request); err != nil {", "if err := ctx.Err(); err != nil {"},
	{"W7/a waiter that gives up leaves its place to the next one", "turn.go",
		"if !t.unsure && !l.queues.alone(t.place) && !l.queues.leave(t.place) {", "if false {"},
	{"W7/returned units can be had at once, and once", "permit.go",
		"if p.settled.Swap(true) {", "if p.settled.Swap(true); false {"},
	{"W7/a debt delays later grants", "permit.go",
		"if p.degraded || actual == p.cost {", "if p.degraded || actual >= p.cost {"},
	{"W9/a lost reply does not consume twice", "turn.go",
		"\t\ta, degraded, again := t.askOnce(bounded)\n", "\t\tt.request.Seq = l.seq.Add(1)\n\t\ta, degraded, again := t.askOnce(bounded)\n"},
	{"W7/a waiter that gives up returns a grant that it has not seen", "turn.go",
		"\tt.asked, t.unsure = true, true\n", "\tt.asked = true\n"},
	{"W11/Closed fails within a second", "turn.go",
		"until = l.now().add(driver.CallTimeout)", "until = l.now().add(3 * driver.CallTimeout)"},
	{"W11/Closed fails within a second", "turn.go", "l.queues.fail(t.place, err, asked)\n\t\t\t}\n\t\t\treturn", "_ = asked\n\t\t\t}\n\t\t\treturn"},
	{"W11/Closed fails within a second", "turn.go", "l.queues.fail(t.place, outage, sent)", ""},
	{"W11/Open and Share allow, and say so", "outage.go",
		"Remaining: c.limit.smallest()}, outage, nil", "Remaining: c.limit.smallest()}, nil, nil"},
	{"W11/Open and Share allow, and say so", "outage.go",
		"N: max(int(part), 1)", "N: max(int(part), rate.N)"},
	{"W11/an outage is reported once, and ends with the first answer", "outage.go",
		"func (h *health) Lost(err error) { h.limiter.observe(Unavailable{Err: err}) }", "func (h *health) Lost(error) {}"},
	{"W11/an outage is reported once, and ends with the first answer", "outage.go",
		"\t\t\tl.observe(end)\n", "\t\t\t_ = end\n"},
	{"W11/an outage is reported once, and ends with the first answer", "outage.go",
		"degraded - h.before", "degraded"},
	{"W12/a process remembers a bounded number of refusals", "refusals.go",
		"len(rs.byKey) >= rs.most", "false"},
	{"W12/a refusal that arrives after a Reset, a Settle or a Cancel is not remembered", "refusals.go",
		"if rs.epoch.Load() != epoch {", "if false {"},
	{"W12/a refusal is repeated without a call", "refusals.go",
		"if rs.most < 0 || r.RetryAfter <= 0 {", "if true {"},
	{"W12/a refusal is repeated without a call", "refusals.go",
		"min(f.result.RetryAfter, maxSilence)", "f.result.RetryAfter"},
	{"W12/a refusal is repeated without a call", "refusals.go",
		" || c.cost < f.cost", ""},
	{"W12/a refusal is repeated without a call", "refusals.go",
		" || !c.limit.equal(&f.limit)", ""},
	{"W12/Reset, Settle and Cancel forget refusals", "permit.go",
		"\tl.changed(p.key)\n", ""},
	{"W12/Reset, Settle and Cancel forget refusals", "limiter.go",
		"\tl.changed(key)\n", ""},
	{"W13/a pause refuses every process until its end", "limiter.go",
		"Left: micros(d)", "Left: micros(d / 2)"},
	{"W13/the longest pause wins and Reset lifts it", "turn.go",
		"e.Full, e.Paused = t.last.Full, t.last.Paused", "e.Full = t.last.Full"},
	{"W14/the state shows rates, waiters and pause", "inspect.go",
		`"peek", key, c.rates)`, `"peek", key, c.rates[:1])`},
	{"W15/arguments out of bounds never reach the driver", "options.go",
		"if fault := lockdriver.KeyFault(key); fault != \"\" {", "if fault := lockdriver.KeyFault(key); false {"},
	{"W15/arguments out of bounds never reach the driver", "limiter.go",
		"d <= 0 || d > MaxPause", "d <= 0"},
	{"W15/arguments out of bounds never reach the driver", "limit.go",
		"case m.Slack < 0 || m.Slack > MaxSlack:", "case false:"},
	{"W15/arguments out of bounds never reach the driver", "limit.go",
		"case m.Concurrent < 0 || m.Concurrent > maxConcurrent:", "case false:"},
	{"W15/arguments out of bounds never reach the driver", "limit.go",
		"case m.Outage != Closed && m.Outage != Open && !(m.Outage > 0 && m.Outage <= 1):", "case false:"},
	{"W16/no more than Concurrent work at once", "slot.go",
		"lock.Slots(n)", "lock.Slots(n+1)"},
	{"W16/the slot is given back if the rate refuses", "turn.go",
		"\t\t_ = s.release()\n", ""},
	{"W16/a busy slot consumes no units", "slot.go",
		"wait = max(t.deadline.sub(t.limiter.now()), 0)", "wait = t.deadline.sub(t.limiter.now()) + 3600e9"},
	{"W16/With keeps its slot until its function has returned, also after the end of its context", "slot.go",
		"\t\treturn fn(ctx, slot{lease, end})\n", "\t\t_ = lease.Release()\n\t\treturn fn(ctx, slot{lease, end})\n"},
}

// Each mutation of the front makes the case fail that is about it. A twentieth of the
// mutations have a turn at a scale of 1; make mutants gives all of them a turn.
func TestMutatedFrontsAreCaught(t *testing.T) {
	mutants.Catch(t, suite.Scaled(len(mutations)/20), mutations)
}
