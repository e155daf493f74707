package nats_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/suite"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// agree fails the test unless the front and NATS agree on whether the two are a
// pattern and a subject, and the memory driver and NATS on whether they match.
//
// The front's grammar is a part of NATS's: what it lets through has to be valid
// there, below the prefix too.
func agree(t *testing.T, pattern, subject string) {
	t.Helper()
	if bus.CheckSubject(subject) == nil && !server.IsValidLiteralSubject("ev."+subject) {
		t.Fatalf("the front takes the subject %q, NATS does not", subject)
	}
	if bus.CheckPattern(pattern) == nil && !server.IsValidSubject("ev."+pattern) {
		t.Fatalf("the front takes the pattern %q, NATS does not", pattern)
	}
	if bus.CheckSubject(subject) != nil || bus.CheckPattern(pattern) != nil {
		return
	}
	want := server.SubjectMatchesFilter("ev."+subject, "ev."+pattern)
	if got := memoryMatches(t, pattern, subject); got != want {
		t.Fatalf("%q matches %q: memory says %v, NATS %v", pattern, subject, got, want)
	}
}

// memoryMatches asks for an answer, which needs no waiting.
func memoryMatches(t *testing.T, pattern, subject string) bool {
	t.Helper()
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	_, err = b.Respond(t.Context(), pattern, func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Request(t.Context(), subject, nil)
	return err == nil
}

// odd are names at the edges of the grammar.
var odd = []string{
	"", ".", "a", "A", "*", ">", "a.b", "a.*", "*.b", "a.>", ">.a", "*.*", "a.*.>", "a..b", ".a", "a.", "a b", "a\tb", "a*", "*a", "a.b>", ">>", "**",
	"$SYS.x", "_INBOX.x", "a.$b", "ev.a", "ü", "\xff", "a\x00", "a\r\nb", "!", "~", "{}", `\`, "%2E",
	strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("a.", 31) + "a", strings.Repeat("a.", 32) + "a", strings.Repeat("*.", 31) + ">",
}

func FuzzMatchingAsNATSDoes(f *testing.F) {
	for _, pattern := range odd {
		for _, subject := range odd[:20] {
			f.Add(pattern, subject)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, subject string) { agree(t, pattern, subject) })
}

func TestMatchingIsAsNATSDoes(t *testing.T) {
	for _, pattern := range odd {
		for _, subject := range odd {
			agree(t, pattern, subject)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range suite.Scaled(20_000) {
		agree(t, randomName(r, true), randomName(r, false))
	}
}

// randomName is a pattern, if wild, or a subject, of few words, so that many
// match.
func randomName(r *rand.Rand, wild bool) string {
	words := []string{"a", "b", "A", "ab", "*", ">"}
	if !wild {
		words = words[:4]
	}
	tokens := make([]string, 1+r.IntN(5))
	for i := range tokens {
		tokens[i] = words[r.IntN(len(words))]
	}
	return strings.Join(tokens, ".")
}

// The same subscriptions, groups among them, on memory and on NATS get the
// same messages.
func TestMemoryRoutesAsNATSDoes(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	onMemory, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	onNATS := open(t, nats.Config{URL: server.URL()})
	t.Cleanup(func() { _ = onMemory.Close() })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range suite.Scaled(10) {
		script := newScript(r)
		a, b := script.run(t, onMemory), script.run(t, onNATS)
		for who, got := range a {
			if !slices.Equal(got, b[who]) {
				t.Fatalf("%s got\n%q on memory and\n%q on NATS", who, got, b[who])
			}
		}
	}
}

// script is subscriptions, and what is then published.
type script struct {
	members  []member
	subjects []string
}

type member struct{ pattern, group string }

func newScript(r *rand.Rand) (s script) {
	for len(s.members) < 60 {
		m := member{randomName(r, true), []string{"", "", "g", "h"}[r.IntN(4)]}
		if bus.CheckPattern(m.pattern) == nil {
			s.members = append(s.members, m)
		}
	}
	for range 200 {
		s.subjects = append(s.subjects, randomName(r, false))
	}
	return s
}

// run returns what came to each subscription without a group, and to each
// group, whose members' shares are nobody's promise.
func (s script) run(t *testing.T, b *bus.Bus) map[string][]string {
	t.Helper()
	var mu sync.Mutex
	got := map[string][]string{}
	var subs []*bus.Sub
	for i, m := range s.members {
		who := fmt.Sprintf("number %d, %s", i, m.pattern)
		if m.group != "" {
			who = "group " + m.group + " of " + m.pattern
		}
		sub, err := b.Subscribe(t.Context(), m.pattern, func(_ context.Context, m *bus.Msg) error {
			mu.Lock()
			defer mu.Unlock()
			got[who] = append(got[who], string(m.Data)+" "+m.Subject)
			return nil
		}, bus.Group(m.group))
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	for i, subject := range s.subjects {
		publish(t, b, subject, fmt.Sprintf("%03d", i))
	}
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sub := range subs {
		if err := sub.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for who := range got {
		slices.Sort(got[who])
	}
	return got
}
