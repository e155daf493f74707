package bustest

import (
	"context"
	"fmt"
	"strings"

	"github.com/megaframework/mega/bus"
)

var subjectCases = []testCase{
	{rule: "S1", claim: "every call refuses a bad subject before the driver is called, and the bus continues", run: badSubjects},
	{rule: "S1", claim: "wildcards are for subscriptions alone", run: wildcardsToPublish},
	{rule: "S1", claim: "unusual subjects and subjects at the bounds arrive unchanged", run: oddSubjects},
}

// badSubjects are neither subjects nor patterns.
func badSubjects(e *env) {
	a, b := e.pair()
	before := a.calls.sum()
	for _, s := range []string{
		"", ".", "..", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nb", "a\x00b", "a\x7f", "ü", "a.\xff", " a", "a ", "a.b\n", "PUB x 0\r\n\r\n",
		"$SYS.x", "$", "_INBOX.x", "_", "a*", "*a", "a.b*.c", "a.>b", ">.a", "a.>.b", ">>", "**", "a.**",
		strings.Repeat("x", 256), strings.Repeat("x", 100_000), strings.Repeat("a.", 32) + "a", strings.Repeat("*.", 32) + "*",
	} {
		for verb, err := range a.verbs(s) {
			e.Is(err, bus.ErrBadSubject, "%s %.40q", verb, s)
			e.hasCode(err, "bus.bad_subject")
			e.Want(len(err.Error()) < 1000, "%s %.40q: the error has %d bytes", verb, s, len(err.Error()))
		}
	}
	e.Want(a.calls.sum() == before, "the driver was asked %d times", a.calls.sum()-before)
	e.works(a, b)
	e.works(b, a)
}

// verbs is every way to name a subject or a pattern.
func (p *process) verbs(s string) map[string]error {
	errs := p.literalVerbs(s)
	_, errs["subscribe"] = p.Subscribe(p.e.Ctx, s, func(context.Context, *bus.Msg) error { return nil })
	_, errs["respond"] = p.Respond(p.e.Ctx, s, func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
	_, errs["topic"] = bus.Topic[int](s).Subscribe(p.e.Ctx, p.Bus, func(context.Context, int) error { return nil })
	return errs
}

// literalVerbs is every way to name a subject.
func (p *process) literalVerbs(s string) map[string]error {
	errs := map[string]error{"publish": p.Publish(p.e.Ctx, s, nil)}
	_, errs["request"] = p.Request(p.e.Ctx, s, nil)
	_, errs["call"] = bus.Call[int, int](p.e.Ctx, p.Bus, s, 1)
	for _, err := range p.RequestMany(p.e.Ctx, s, nil) {
		errs["request many"] = err
	}
	return errs
}

func wildcardsToPublish(e *env) {
	a, b := e.pair()
	all := b.listen(">")
	b.echo(">")
	for _, s := range []string{"*", ">", "a.*", "*.a", "a.*.b", "a.>"} {
		for verb, err := range a.literalVerbs(s) {
			e.Is(err, bus.ErrBadSubject, "%s %q", verb, s)
		}
	}
	a.flush()
	e.drain(all)
	all.has()
}

func oddSubjects(e *env) {
	a, b := e.pair()
	subjects := []string{
		"a", "A", "0", "a.b.c", "!", "a-b_c", "a.$b", "a._b", "%7B", "{}", `"`, "'", `\`, "/", "a/b.c/d", "~", "|", "ev.x", "rpc.x", "a:b", "#", "+", "%s%d",
		strings.Repeat("x", 255), strings.Repeat("a.", 31) + "a", strings.Repeat("abcdefg.", 31) + "abcdefg", strings.Repeat("x.", 2) + strings.Repeat("y", 251),
	}
	all := b.listen(">")
	b.respond(">", func(_ context.Context, m *bus.Msg) ([]byte, error) { return []byte(m.Subject), nil })
	var exact []*inbox
	for _, s := range subjects {
		exact = append(exact, b.listen(s))
	}
	for i, s := range subjects {
		a.publish(s, fmt.Sprint(i))
		e.Want(a.request(s, "") == s, "the responder to %q received another subject", s)
	}
	a.flush()
	e.drain(append(exact, all)...)
	for i, m := range all.all() {
		e.Want(m.Subject == subjects[i], "%q arrived as %q", subjects[i], m.Subject)
		exact[i].has(fmt.Sprint(i))
	}
	e.Want(all.len() == len(subjects), "%d of %d arrived", all.len(), len(subjects))
}
