package bustest

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var restoreCases = []testCase{
	{rule: "S23", claim: "after each of many outages the bus works as before", needs: []fault{"Down", "Up"}, run: restored},
	{rule: "S23", claim: "a subscription that ends after an outage leaves nothing at the backend", needs: []fault{"Down", "Up", "Registrations"}, run: endsAfterOutage},
}

// outages is how many outages a case makes: 5, and up to 50 where the counts are
// scaled.
func outages() int { return min(max(suite.Scaled(5), 5), 50) }

// outage takes the backend away from processes and brings it back.
func (e *env) outage(ps ...*process) {
	e.down()
	e.isDisconnected(ps...)
	e.up()
	e.isConnected(ps...)
}

// restored looks at a plain subscription, a group, a responder and the data
// after each outage.
func restored(e *env) {
	a, b := e.pair()
	plain := b.listen("x")
	members := []*inbox{a.listen("x", bus.Group("g")), b.listen("x", bus.Group("g")), b.listen("x", bus.Group("g"))}
	want := oddHeader()
	b.respond("ask", func(ctx context.Context, m *bus.Msg) ([]byte, error) { return m.Data, replyHeader(ctx, want) })
	const each, size = 10, 100_000
	for round := range outages() + 1 {
		if round > 0 {
			e.outage(a, b)
		}
		for i := range each {
			e.Must(a.Publish(e.Ctx, "x", pattern(size+i)), "publish")
		}
		a.flush()
		plain.waits((round + 1) * each)
		e.Soon(fmt.Sprintf("after %d outages the group has its messages", round), func() bool { return total(members...) >= (round+1)*each })
		m, err := a.Request(e.Ctx, "ask", pattern(size))
		e.Must(err, "request after %d outages", round)
		e.same(m.Data, size, "an answer")
		e.sameHeader(m.Header, want)
		for _, in := range append(members, plain) {
			e.Want(in.Stats().Gaps == uint64(round), "after %d outages %d gaps were reported to a member of group %q", round, in.Stats().Gaps, in.Stats().Group) //nolint:gosec // small
		}
	}
	rounds := outages() + 1
	e.drain(append(members, plain)...)
	e.Want(plain.len() == rounds*each && total(members...) == rounds*each, "the subscription has %d messages and the group %d, want %d", plain.len(), total(members...), rounds*each)
	seen := map[string]int{}
	for _, in := range members {
		for _, m := range in.all() {
			e.same(m.Data, len(m.Data), "a message of the group")
			seen[fmt.Sprint(len(m.Data))]++
		}
	}
	for n, times := range seen {
		e.Want(times == rounds, "the message of %s bytes came to the group %d times in %d rounds", n, times, rounds)
	}
}

// endsAfterOutage stops and drains subscriptions that an outage has restored.
func endsAfterOutage(e *env) {
	a, b := e.pair()
	a.listen("stays")
	b.echo("stays")
	a.request("stays", "")
	base := e.registrations()
	for range 2 {
		stops, drains, s := b.listen("x"), b.listen("x.*", bus.Group("g")), b.echo("x")
		e.outage(a, b)
		e.works(a, b)
		stops.Stop()
		s.Stop()
		e.drain(drains)
		e.Soon(fmt.Sprintf("the backend has %d subscriptions again", base), func() bool { return e.registrations() == base })
	}
}
