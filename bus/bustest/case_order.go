package bustest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var orderCases = []testCase{
	{rule: "S5", claim: "messages of one publisher are handled in its order, across subjects", run: orderAcrossSubjects},
	{rule: "S5", claim: "the messages of each of many publishers keep their order", run: orderOfEach},
	{rule: "S5", claim: "an earlier publish is handled first, also of another publisher on the bus", run: orderAcrossGoroutines},
	{rule: "S5", claim: "OrderBy keeps the order of a key at any concurrency", run: orderByKey},
	{rule: "S5", claim: "a key whose handler hangs delays no other key", run: stuckKey},
	{rule: "S5", claim: "members of a group receive their shares in order", run: orderInGroup},
}

func orderAcrossSubjects(e *env) {
	a, b := e.pair()
	n := suite.Scaled(5000)
	boxes := []*inbox{b.listen("x.>", roomFor(n)), b.listen(">", roomFor(n)), b.listen("x.*.z", bus.Group("g"), roomFor(n))}
	for i := range n {
		a.publish(fmt.Sprintf("x.%d.z", i%13), strconv.Itoa(i))
	}
	a.flush()
	e.drain(boxes...)
	for _, in := range boxes {
		for i, data := range in.data() {
			e.Want(data == strconv.Itoa(i), "%s: message %d was %s", in.Name(), i, data)
		}
		e.Want(in.len() == n, "%s has %d of %d messages", in.Name(), in.len(), n)
	}
}

// sequence checks the order of numbers from each source.
type sequence struct {
	e    *env
	mu   sync.Mutex // guards last
	last map[string]int
}

// next fails the case if n from a source is not greater than the one before.
func (s *sequence) next(source string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[string]int{}
	}
	if before, ok := s.last[source]; ok && n <= before {
		s.e.Report("of %s, %d was handled after %d", source, n, before)
	}
	s.last[source] = n
}

func orderOfEach(e *env) {
	a, b := e.pair()
	n := suite.Scaled(500)
	var boxes []*inbox
	for _, p := range []*process{a, b} {
		boxes = append(boxes, p.listen("x.*", roomFor(16*n)), p.listen(">", roomFor(16*n)))
	}
	e.All(16, func(i int) {
		p := []*process{a, b}[i%2]
		for j := range n {
			p.publish(fmt.Sprint("x.", i), strconv.Itoa(j))
		}
	})
	a.flush()
	b.flush()
	e.drain(boxes...)
	for _, in := range boxes {
		s := sequence{e: e}
		for _, m := range in.all() {
			j, _ := strconv.Atoi(string(m.Data))
			s.next(m.Subject, j)
		}
		e.Want(in.len() == 16*n, "%d of %d have arrived", in.len(), 16*n)
	}
}

// orderAcrossGoroutines passes the turn to publish between goroutines.
func orderAcrossGoroutines(e *env) {
	p := e.process()
	n := suite.Scaled(2000)
	in := p.listen("x.*")
	var mu sync.Mutex
	next := 0
	e.All(4, func(i int) {
		for {
			mu.Lock()
			if next == n {
				mu.Unlock()
				return
			}
			p.publish(fmt.Sprint("x.", i), strconv.Itoa(next))
			next++
			mu.Unlock()
		}
	})
	e.drain(in)
	for i, data := range in.data() {
		e.Want(data == strconv.Itoa(i), "message %d was %s", i, data)
	}
	e.Want(in.len() == n, "%d of %d have arrived", in.len(), n)
}

func orderByKey(e *env) {
	a, b := e.pair()
	n := suite.Scaled(10_000)
	s := sequence{e: e}
	var mu sync.Mutex
	busy := map[string]bool{}
	sub := b.subscribe("x.*", func(_ context.Context, m *bus.Msg) error {
		mu.Lock()
		if busy[m.Subject] {
			e.Report("two messages of %s are handled at once", m.Subject)
		}
		busy[m.Subject] = true
		mu.Unlock()
		for range rand.IntN(4) {
			runtime.Gosched()
		}
		j, _ := strconv.Atoi(string(m.Data))
		s.next(m.Subject, j)
		mu.Lock()
		busy[m.Subject] = false
		mu.Unlock()
		return nil
	}, bus.Concurrency(64), bus.OrderBy(func(m *bus.Msg) string { return m.Subject }), roomFor(n))
	for i := range n {
		a.publish(fmt.Sprint("x.", rand.IntN(500)), strconv.Itoa(i))
	}
	a.flush()
	e.Must(sub.Drain(e.Ctx), "drain")
	e.Want(sub.Stats().Handled == uint64(n), "%d of %d were handled", sub.Stats().Handled, n)
}

func stuckKey(e *env) {
	a, b := e.pair()
	g := e.gate()
	in := &inbox{e: e}
	in.Sub = b.subscribe("x.*", func(ctx context.Context, m *bus.Msg) error {
		if m.Subject == "x.stuck" {
			g.pass(ctx)
		}
		return in.handle(ctx, m)
	}, bus.Concurrency(4), bus.OrderBy(func(m *bus.Msg) string { return m.Subject }))
	for i := range 10 {
		a.publish("x.stuck", fmt.Sprint("stuck ", i))
		a.publish("x.free", fmt.Sprint("free ", i))
	}
	in.waits(10)
	for i, data := range in.data() {
		e.Want(data == fmt.Sprint("free ", i), "%s was handled", data)
	}
	g.open()
	in.waits(20)
	for i, data := range in.data()[10:] {
		e.Want(data == fmt.Sprint("stuck ", i), "after the release %s was number %d", data, i)
	}
}

func orderInGroup(e *env) {
	a, b := e.pair()
	n := suite.Scaled(2000)
	var members []*inbox
	for i := range 4 {
		members = append(members, []*process{a, b}[i%2].listen("x.*", bus.Group("g")))
	}
	for i := range n {
		a.publish(fmt.Sprint("x.", i%3), strconv.Itoa(i))
	}
	a.flush()
	e.drain(members...)
	total := 0
	for _, in := range members {
		s := sequence{e: e}
		for _, data := range in.data() {
			i, _ := strconv.Atoi(data)
			s.next("the publisher", i)
		}
		total += in.len()
	}
	e.Want(total == n, "the group has handled %d of %d", total, n)
}
