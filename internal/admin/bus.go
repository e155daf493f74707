package admin

import (
	"cmp"
	"slices"

	"github.com/megaframework/mega/bus"
)

// Messages describes the bus of a process: its scope, its state, and the
// counters of each subscription.
type Messages struct {
	Scope      string `json:"scope"` // how far messages reach: process, node, fleet
	Why        string `json:"why,omitempty"`
	MaxPayload int    `json:"max_payload"` // of a message with its header, in bytes
	bus.Stats
}

// newMessages returns the Messages of b, with empty lists in place of null.
func newMessages(b *bus.Bus) Messages {
	info := b.Info()
	m := Messages{Scope: info.Scope.String(), MaxPayload: info.MaxPayload, Stats: b.Stats()}
	if _, why := b.State(); why != nil {
		m.Why = why.Error()
	}
	m.Subs = append([]bus.SubStats{}, m.Subs...)
	return m
}

// Topic is a pattern with the subscriptions or responders of a process, and the
// sum of their counters.
type Topic struct {
	Pattern       string   `json:"pattern"`
	Answers       bool     `json:"answers"` // requests; otherwise events
	Subscriptions int      `json:"subscriptions"`
	Groups        []string `json:"groups"`
	Received      uint64   `json:"received"`
	Handled       uint64   `json:"handled"`
	Failed        uint64   `json:"failed"`
	Dropped       uint64   `json:"dropped"`
	Missed        uint64   `json:"missed"`
	Pending       int      `json:"pending"` // waiting now
}

// newTopics returns the topics sorted by pattern, events first.
func newTopics(subs []bus.SubStats) []Topic {
	type key struct {
		pattern string
		answers bool
	}
	found := map[key]*Topic{}
	for _, s := range subs {
		k := key{s.Pattern, s.Answers}
		if found[k] == nil {
			found[k] = &Topic{Pattern: s.Pattern, Answers: s.Answers, Groups: []string{}}
		}
		found[k].add(s)
	}
	all := make([]Topic, 0, len(found))
	for _, t := range found {
		slices.Sort(t.Groups)
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b Topic) int {
		return cmp.Or(cmp.Compare(a.Pattern, b.Pattern), cmp.Compare(a.Kind(), b.Kind()))
	})
	return all
}

// Kind returns "events" or "requests".
func (t Topic) Kind() string {
	if t.Answers {
		return "requests"
	}
	return "events"
}

func (t *Topic) add(s bus.SubStats) {
	t.Subscriptions++
	if s.Group != "" && !slices.Contains(t.Groups, s.Group) {
		t.Groups = append(t.Groups, s.Group)
	}
	t.Received += s.Received
	t.Handled += s.Handled
	t.Failed += s.Failed
	t.Dropped += s.Dropped
	t.Missed += s.Missed
	t.Pending += s.Pending
}
