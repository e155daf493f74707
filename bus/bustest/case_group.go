package bustest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var groupCases = []testCase{
	{rule: "S11", claim: "each message goes to one member, and no member starves", run: groupShares},
	{rule: "S11", claim: "the same name under two patterns is two groups", run: groupIsPatternAndName},
	{rule: "S11", claim: "two names under one pattern are two groups, and a subscription without a group gets all messages", run: groupAndPlain},
	{rule: "S11", claim: "nothing is lost while members are drained and others join", run: groupDrains},
	{rule: "S11", claim: "a stopped member gets no more messages, and its queued ones are counted", run: groupStops},
	{rule: "S11", claim: "the death of a member loses only its own messages", needs: []fault{"Crash"}, run: groupCrash},
	{rule: "S11", claim: "after the last member has left nothing is stuck, and a new member is served", run: groupEmpties},
	{rule: "S11", claim: "a bad name is refused before the driver is called", run: badGroups},
	{rule: "S11", claim: "unusual names are valid groups", run: oddGroups},
	{rule: "S11", claim: "groups stay apart if their names begin alike, make up the same text with their patterns, or are an encoding of each other", run: similarGroups},
}

func total(boxes ...*inbox) (n int) {
	for _, in := range boxes {
		n += in.len()
	}
	return n
}

// Two members are of one process, which may let one of them wait for a processor for
// a whole round.
func groupShares(e *env) {
	a, b := e.pair()
	n := max(suite.Scaled(3000), 300)
	members := []*inbox{a.listen("x.*", bus.Group("g")), b.listen("x.*", bus.Group("g")), b.listen("x.*", bus.Group("g"))}
	least := func() int { return min(members[0].len(), members[1].len(), members[2].len()) }
	published := 0
	for round := 0; round < 20 && least() < n/12; round++ {
		for range n {
			b.publish("x.y", fmt.Sprint(published))
			published++
		}
		b.flush()
		e.Soon(fmt.Sprintf("the group gets %d messages", published), func() bool { return total(members...) >= published })
	}
	e.drain(members...)
	seen := map[string]bool{}
	for _, in := range members {
		for _, data := range in.data() {
			e.Want(!seen[data], "two members got %s", data)
			seen[data] = true
		}
	}
	e.Want(len(seen) == published, "the group got %d of %d", len(seen), published)
	e.Want(least() >= n/12, "one of three members got %d of %d", least(), published)
}

func groupIsPatternAndName(e *env) {
	a, b := e.pair()
	exact := []*inbox{a.listen("x.y", bus.Group("g")), b.listen("x.y", bus.Group("g"))}
	wide := []*inbox{a.listen("x.*", bus.Group("g")), b.listen("x.*", bus.Group("g"))}
	all := []*inbox{a.listen(">", bus.Group("g"))}
	for range 100 {
		a.publish("x.y", "")
	}
	a.flush()
	for _, group := range [][]*inbox{exact, wide, all} {
		e.drain(group...)
		e.Want(total(group...) == 100, "the group of %s got %d of 100", group[0].Pattern(), total(group...))
	}
}

func groupAndPlain(e *env) {
	a, b := e.pair()
	plain := []*inbox{a.listen("x"), b.listen("x")}
	one := []*inbox{a.listen("x", bus.Group("one")), b.listen("x", bus.Group("one"))}
	two := []*inbox{b.listen("x", bus.Group("two")), b.listen("x", bus.Group("two"))}
	large := []*inbox{a.listen("x", bus.Group("One"))}
	for range 100 {
		a.publish("x", "")
	}
	a.flush()
	e.drain(plain...)
	e.drain(slices.Concat(one, two, large)...)
	e.Want(plain[0].len() == 100 && plain[1].len() == 100, "those without a group got %d and %d of 100", plain[0].len(), plain[1].len())
	e.Want(total(one...) == 100 && total(two...) == 100 && total(large...) == 100, "the groups got %d, %d and %d of 100", total(one...), total(two...), total(large...))
}

func groupDrains(e *env) {
	a, b := e.pair()
	var published atomic.Int64
	publishing, stop := context.WithCancel(e.Ctx)
	steady := b.listen("x", bus.Group("g"))
	over := e.Async(func() {
		for publishing.Err() == nil {
			a.publish("x", fmt.Sprint(published.Add(1)))
			e.breathe()
		}
	})
	members := []*inbox{steady}
	for i := range suite.Scaled(30) {
		in := []*process{a, b}[i%2].listen("x", bus.Group("g"))
		members = append(members, in)
		e.Soon("who joins is served", func() bool { return in.len() > 0 })
		e.drain(in)
	}
	stop()
	e.Await(over, "the publisher ends")
	a.flush()
	e.drain(steady)
	e.Want(total(members...) == int(published.Load()), "of %d messages %d were handled", published.Load(), total(members...))
}

func groupStops(e *env) {
	a, b := e.pair()
	n := suite.Scaled(3000)
	members := make([]*inbox, 4)
	for i := range members {
		members[i] = []*process{a, b}[i%2].listen("x", bus.Group("g"))
	}
	for i := range n {
		a.publish("x", fmt.Sprint(i))
		if i == n/2 {
			members[2].Stop()
			members[3].Stop()
		}
	}
	a.flush()
	e.drain(members...)
	var counted, missed uint64
	for _, in := range members {
		e.Await(in.Done(), "it is over")
		counted += in.Stats().Discarded + in.Stats().Missed
		missed += in.Stats().Missed
	}
	// The backend may believe a stopped member connected for a while. The messages on
	// their way to it are lost with it, and counted.
	e.Want(total(members...)+int(counted) == n, "%d were handled and %d counted of %d", total(members...), counted, n)
	all := a.Stats().Total.Missed + b.Stats().Total.Missed
	e.Want(all == missed, "%d are missed in total, and %d at the members", all, missed)
	e.Want(members[2].len()+members[3].len() < n && total(members[:2]...) > n/3, "the shares are %d, %d, %d, %d", members[0].len(), members[1].len(), members[2].len(), members[3].len())
}

func groupCrash(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	n := suite.Scaled(1000)
	members := []*inbox{b.listen("x", bus.Group("g")), c.listen("x", bus.Group("g"))}
	publishMany(a, "x", 1, n)
	a.flush()
	e.Soon("all are handled", func() bool { return total(members...) == n })
	e.crash(c)
	publishMany(a, "x", n+1, 2*n)
	a.flush()
	e.drain(members[0])
	e.Want(total(members...) == 2*n, "of %d messages %d were handled", 2*n, total(members...))
}

// crash cuts a process off for good.
func (e *env) crash(p *process) {
	p.cut.Store(true)
	e.Must(e.h.Faults.Crash(p.driver), "crash")
}

func groupEmpties(e *env) {
	a, b := e.pair()
	in := b.listen("x", bus.Group("g"))
	s := b.echo("x")
	a.publish("x", "1")
	a.flush()
	e.drain(in)
	e.Must(s.Drain(e.Ctx), "drain")
	a.publish("x", "nobody")
	_, err := a.Request(e.Ctx, "x", nil)
	e.Is(err, bus.ErrNoResponders, "when the last responder has left")
	a.flush()
	next := b.listen("x", bus.Group("g"))
	b.echo("x")
	a.publish("x", "2")
	a.flush()
	e.drain(next)
	in.has("1")
	next.has("2")
	e.Want(a.request("x", "3") == "3", "another answer")
}

func badGroups(e *env) {
	p := e.process()
	before := p.calls.sum()
	for _, name := range []string{"a b", " ", "a\r\nb", "a\x00", "ü", "*", "a>", "\xff", string(make([]byte, 65)), fmt.Sprintf("%065d", 1)} {
		_, err := p.Subscribe(e.Ctx, "x", func(context.Context, *bus.Msg) error { return nil }, bus.Group(name))
		e.Is(err, bus.ErrBadGroup, "subscribe as %q", name)
		e.hasCode(err, "bus.bad_group")
		_, err = p.Respond(e.Ctx, "x", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }, bus.Group(name))
		e.Is(err, bus.ErrBadGroup, "respond as %q", name)
	}
	e.Want(p.calls.sum() == before, "the driver was asked %d times", p.calls.sum()-before)
	e.works(p, p)
}

func oddGroups(e *env) {
	a, b := e.pair()
	for _, name := range []string{"a", "A", ".", "a.b", ":", "a:b", "x:x", "$", "_", fmt.Sprintf("%064d", 1), "{}", "responders"} {
		members := []*inbox{a.listen("x.*", bus.Group(name)), b.listen("x.*", bus.Group(name))}
		for range 20 {
			a.publish("x.y", "")
		}
		a.flush()
		e.drain(members...)
		e.Want(total(members...) == 20, "the group %q got %d of 20", name, total(members...))
	}
}

// similarGroups has groups that a driver may take for one which joins a name and a
// pattern by a sign, which writes a sign as an encoding of it, or which cuts a name.
func similarGroups(e *env) {
	a, b := e.pair()
	alike := func(subject string, groups ...*inbox) {
		for i := range 5 {
			a.publish(subject, strconv.Itoa(i))
		}
		a.flush()
		e.drain(groups...)
		for _, in := range groups {
			e.Want(slices.Equal(in.data(), numbers(0, 4)), "the group %q of %s got %q", in.Stats().Group, in.Pattern(), in.data())
		}
	}
	for _, sign := range []string{":", ".", "/", "|", "-", "_", ",", ";", "#", "@", "~", "%"} {
		alike("x.y"+sign+"x.z", b.listen("x.y"+sign+"x.>", bus.Group("g")), b.listen("x.>", bus.Group("g"+sign+"x.y")))
	}
	var encoded []*inbox
	for _, name := range []string{"g", "g:", "g%3A", "g%3a", "g%253A", "g%", "g%25", "g.", "g%2E", "g+", "g_"} {
		encoded = append(encoded, b.listen("x.>", bus.Group(name)))
	}
	alike("x.y", encoded...)
	longest := strings.Repeat("g", 63)
	alike("x.y", b.listen("x.>", bus.Group(longest+"1")), b.listen("x.>", bus.Group(longest+"2")))
}
