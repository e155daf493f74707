package bustest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var matchCases = []testCase{
	{rule: "S2", claim: "wildcards match one token, or the rest", run: matchTable},
	{rule: "S2", claim: "random patterns match subjects like a naive implementation of the rule", run: matchRandom},
	{rule: "S2", claim: "random patterns of requests match like a naive implementation of the rule", run: matchRequests},
	{rule: "S2", claim: "added and removed patterns take effect at once", run: matchChanges},
}

func matchTable(e *env) {
	a, b := e.pair()
	table := map[string]map[string]bool{
		"a":     {"a": true, "A": false, "a.a": false, "aa": false, "b": false},
		"a.b":   {"a.b": true, "a": false, "a.B": false, "a.b.c": false, "a.bc": false},
		"*":     {"a": true, "b": true, "a.b": false},
		"a.*":   {"a": false, "a.b": true, "a.b.c": false, "A.b": false, "b.a": false},
		"*.b":   {"a.b": true, "b": false, "a.a.b": false, "a.b.b": false},
		"a.*.c": {"a.b.c": true, "a.c": false, "a.b.b.c": false, "a.b.d": false},
		"*.*":   {"a.b": true, "a": false, "a.b.c": false},
		">":     {"a": true, "a.b": true, "a.b.c.d": true},
		"a.>":   {"a": false, "a.b": true, "a.b.c": true, "b.a": false, "aa.b": false},
		"*.>":   {"a": false, "a.b": true, "a.b.c": true},
		"a.*.>": {"a.b": false, "a.b.c": true, "a.b.c.d": true, "b.b.c": false},
	}
	boxes, subjects := map[string]*inbox{}, map[string]bool{}
	for pattern, row := range table {
		boxes[pattern] = b.listen(pattern)
		for s := range row {
			subjects[s] = true
		}
	}
	for s := range subjects {
		a.publish(s, s)
	}
	a.flush()
	for pattern, in := range boxes {
		e.drain(in)
		got := in.data()
		for s, want := range table[pattern] {
			e.Want(slices.Contains(got, s) == want, "%q matches %q: %v, want %v", pattern, s, !want, want)
		}
	}
}

// matches is the rule, read naively.
func matches(pattern, subject string) bool {
	ps, ss := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, p := range ps {
		switch {
		case p == ">":
			return len(ss) > i
		case i >= len(ss) || p != "*" && p != ss[i]:
			return false
		}
	}
	return len(ps) == len(ss)
}

// randomName is a subject, or a pattern if wild, of few words, so that many
// match.
func randomName(r *rand.Rand, wild bool) string {
	words := []string{"a", "b", "A", "aa", "*"}
	if !wild {
		words = words[:4]
	}
	tokens := make([]string, 1+r.IntN(4))
	for i := range tokens {
		tokens[i] = words[r.IntN(len(words))]
	}
	if wild && r.IntN(4) == 0 {
		tokens[len(tokens)-1] = ">"
	}
	return strings.Join(tokens, ".")
}

// random returns a random source and its seed, which repeats a failure.
func (e *env) random() (r *rand.Rand, seed uint64) {
	seed = rand.Uint64()
	return rand.New(rand.NewPCG(seed, 0)), seed
}

func matchRandom(e *env) {
	a, b := e.pair()
	r, seed := e.random()
	for range suite.Scaled(5) {
		var boxes []*inbox
		want := map[*inbox][]string{}
		for i := range 60 {
			opts := []bus.SubOption{}
			if i%5 == 0 {
				opts = append(opts, bus.Group(fmt.Sprint("g", i))) // of one member
			}
			boxes = append(boxes, b.listen(randomName(r, true), opts...))
		}
		for i := range 300 {
			s := randomName(r, false)
			a.publish(s, fmt.Sprintf("%d %s", i, s))
			for _, in := range boxes {
				if matches(in.Pattern(), s) {
					want[in] = append(want[in], fmt.Sprintf("%d %s", i, s))
				}
			}
		}
		a.flush()
		e.drain(boxes...)
		for _, in := range boxes {
			e.Want(slices.Equal(in.data(), want[in]), "seed %d: %q got\n%.500q, want\n%.500q", seed, in.Pattern(), in.data(), want[in])
		}
	}
}

func matchRequests(e *env) {
	a, b := e.pair()
	r, seed := e.random()
	for range suite.Scaled(30) {
		pattern := randomName(r, true)
		s := b.echo(pattern)
		for range 10 {
			subject := randomName(r, false)
			_, err := a.Request(e.Ctx, subject, nil)
			if matches(pattern, subject) {
				e.Must(err, "seed %d: %q of a responder to %q", seed, subject, pattern)
			} else {
				e.Is(err, bus.ErrNoResponders, "seed %d: %q of a responder to %q", seed, subject, pattern)
			}
		}
		ctx, cancel := e.Bounded()
		e.Must(s.Drain(ctx), "drain")
		cancel()
	}
}

// matchChanges publishes one subject while patterns that match it come and go:
// cached matches of a subject must not outlive a change.
func matchChanges(e *env) {
	p := e.process()
	patterns := []string{"x.y.z", "x.*.z", "x.>", ">", "*.*.*", "x.y.*"}
	var boxes []*inbox
	for i, pattern := range patterns {
		boxes = append(boxes, p.listen(pattern))
		p.publish("x.y.z", fmt.Sprint("in ", i))
	}
	for i := range patterns {
		e.drain(boxes[i])
		p.publish("x.y.z", fmt.Sprint("out ", i))
	}
	for i, in := range boxes {
		var want []string
		for j := i; j < len(patterns); j++ {
			want = append(want, fmt.Sprint("in ", j))
		}
		for j := range i {
			want = append(want, fmt.Sprint("out ", j))
		}
		in.has(want...)
	}
}
