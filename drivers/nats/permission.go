package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// A server does not announce the permissions of a user. It refuses each message and
// each subscription by itself, when a program that serves already has lost it. So
// the driver asks for the permissions when it opens, and tries out what it can
// without a trace if the user may not even ask.

// userInfo is the subject at which a server describes the user of a connection.
// Servers before 2.9 have no answer.
const userInfo = "$SYS.REQ.USER.INFO"

// askTime bounds the wait for that description.
const askTime = time.Second

// tryout ends the subjects that are tried out.
const tryout = "mega_boot"

// permissions has the permissions of a user. A nil field allows everything.
type permissions struct {
	Publish   *subjects `json:"publish"`
	Subscribe *subjects `json:"subscribe"`
	Responses *struct{} `json:"responses"` // allow_responses: the user may answer every request that it receives
}

// subjects are patterns, which a queue may follow. Without Allow everything is
// allowed.
type subjects struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// examine returns warnings about what the user of the link is not allowed to do. It
// returns an error if it may do nothing that the bus needs, or if ctx ends.
func (l *link) examine(ctx context.Context) (warnings []string, err error) {
	p, asked := l.ask(ctx)
	if !asked {
		refused := l.tryOut(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ask for the permissions of the user: %w", ctx.Err())
		}
		if len(refused) > 0 {
			return []string{"the server refuses to this NATS user: " + strings.Join(refused, ", ") +
				"; check its permissions, and allow it to publish to " + userInfo + ", so that the boot can read them"}, nil
		}
		return nil, nil
	}
	var lacks []string
	useful := false
	for _, n := range l.bus.needs() {
		if !n.isMet(p) {
			lacks = append(lacks, n.String())
		} else {
			useful = useful || n.use != answers
		}
	}
	switch {
	case !useful:
		return nil, fmt.Errorf("%w: the permissions of the user do not include: %s", nats.ErrPermissionViolation, strings.Join(lacks, ", "))
	case len(lacks) > 0:
		warnings = append(warnings, "the permissions of the NATS user do not include: "+strings.Join(lacks, ", "))
	}
	// The server refuses a subscription that is denied, but only leaves denied subjects
	// out of a wider one, without a report (S4).
	if denied := p.Subscribe.denied(l.bus.prefixes[driver.Event] + ">"); len(denied) > 0 {
		warnings = append(warnings, "the permissions of the NATS user deny it to receive: "+strings.Join(denied, ", ")+
			"; a subscription with wildcards that includes these subjects gets none of their events, and no gap")
	}
	return warnings, nil
}

// need is what a bus needs to do below a prefix.
type need struct {
	publish bool
	pattern string
	use     string
}

const answers = "answers" // of requests, and of no use alone

func (n need) isMet(p permissions) bool {
	if n.publish {
		return n.use == answers && p.Responses != nil || p.Publish.allow(n.pattern)
	}
	return p.Subscribe.allow(n.pattern)
}

func (n need) String() string {
	if n.publish {
		return fmt.Sprintf("publish to %s (%s)", n.pattern, n.use)
	}
	return fmt.Sprintf("subscribe to %s (%s)", n.pattern, n.use)
}

func (b *Bus) needs() []need {
	events, requests := b.prefixes[driver.Event]+">", b.prefixes[driver.Request]+">"
	all := []need{
		{true, events, "events"}, {false, events, "events"},
		{true, requests, "requests"}, {false, requests, "requests"},
		{false, b.inbox.prefix + ">", answers},
	}
	if strings.HasPrefix(b.inbox.prefix, nats.InboxPrefix) { // else the prefixes of other programs are not known here
		all = append(all, need{true, nats.InboxPrefix + ">", answers})
	}
	return all
}

// ask returns the permissions of the user, and reports whether they are known.
func (l *link) ask(ctx context.Context) (p permissions, known bool) {
	inbox := l.bus.inbox.prefix + tryout
	sub, err := l.conn.SubscribeSync(inbox)
	if err != nil {
		return p, false
	}
	defer func() { _ = sub.Unsubscribe() }() // fails with the link
	if l.conn.PublishRequest(userInfo, inbox, nil) != nil || l.flush(ctx) != nil {
		return p, false
	}
	l.settle()
	if len(l.refusals.of(userInfo, inbox)) > 0 {
		return p, false
	}
	bounded, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := sub.NextMsgWithContext(bounded)
	_ = sub.Unsubscribe()
	_ = l.flush(ctx) // the server has ended it; both fail with the link
	if err != nil {
		return p, false
	}
	var answer struct {
		Data *struct {
			Permissions permissions `json:"permissions"`
		} `json:"data"`
	}
	err = json.Unmarshal(m.Data, &answer)
	if err != nil || answer.Data == nil {
		return p, false
	}
	return answer.Data.Permissions, true
}

// tryOut returns what the server has refused of a message of each kind, and of
// a subscription to answers. No message is delivered: its reply is reserved.
func (l *link) tryOut(ctx context.Context) (refused []string) {
	for _, n := range []need{{true, l.bus.prefixes[driver.Event] + tryout, "events"}, {true, l.bus.prefixes[driver.Request] + tryout, "requests"}} {
		if l.refusesPublish(ctx, n.pattern) {
			refused = append(refused, n.String())
		}
	}
	if n := (need{false, l.bus.inbox.prefix + tryout, answers}); len(l.refusals.of(n.pattern)) > 0 {
		refused = append(refused, n.String())
	}
	return refused
}

func (l *link) refusesPublish(ctx context.Context, subject string) bool {
	if len(l.refusals.of(userInfo)) == 0 { // the server reports each such message as an error in its log
		return false
	}
	if l.conn.PublishRequest(subject, reservedReply, nil) != nil || l.flush(ctx) != nil {
		return false
	}
	l.settle()
	return len(l.refusals.of(subject)) > 0
}

// flush waits until the server has handled everything before, at most for the
// timeout of an attempt to connect.
func (l *link) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.bus.config.dial)
	defer cancel()
	return l.conn.FlushWithContext(ctx)
}

// isTryout reports whether an error is about a subject that is tried out.
func (b *Bus) isTryout(err error) bool {
	subject := refusedSubject(err)
	return subject == userInfo || strings.HasSuffix(subject, tryout) && (subject == b.prefixes[driver.Event]+tryout ||
		subject == b.prefixes[driver.Request]+tryout || subject == b.inbox.prefix+tryout)
}

// refusedSubject returns the subject that an error of the server names, or "".
func refusedSubject(err error) string {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return ""
	}
	if s := quotedAfter(err.Error(), toPublish); s != "" {
		return s
	}
	return quotedAfter(err.Error(), toSubscription)
}

// allow reports whether some subject that matches want is allowed.
func (s *subjects) allow(want string) bool {
	if s == nil {
		return true
	}
	return slices.ContainsFunc(s.allowed(), func(a string) bool {
		return overlap(a, want) && !slices.ContainsFunc(s.Deny, func(d string) bool {
			return !strings.Contains(d, " ") && (covers(d, want) || covers(d, a))
		})
	})
}

// allowed returns the allowed patterns, without queues.
func (s *subjects) allowed() (patterns []string) {
	if len(s.Allow) == 0 {
		return []string{">"}
	}
	for _, a := range s.Allow {
		a, _, _ = strings.Cut(a, " ")
		patterns = append(patterns, a)
	}
	return patterns
}

// denied returns the patterns that are denied although a part of want is allowed.
func (s *subjects) denied(want string) []string {
	if s == nil || !s.allow(want) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Deny), func(d string) bool {
		matters := func(a string) bool { return overlap(a, d) }
		reserved := want == ">" && (d[0] == '$' || d[0] == '_') // of no event
		return reserved || strings.Contains(d, " ") || !overlap(d, want) || !slices.ContainsFunc(s.allowed(), matters)
	})
}

// overlap reports whether some subject matches both patterns.
func overlap(a, b string) bool {
	for {
		x, restA, moreA := strings.Cut(a, ".")
		y, restB, moreB := strings.Cut(b, ".")
		switch {
		case x == ">" || y == ">":
			return true
		case x != y && x != "*" && y != "*":
			return false
		case !moreA || !moreB:
			return moreA == moreB
		}
		a, b = restA, restB
	}
}

// covers reports whether every subject that matches inner also matches outer.
func covers(outer, inner string) bool {
	os, is := strings.Split(outer, "."), strings.Split(inner, ".")
	for i, o := range os {
		switch {
		case i >= len(is):
			return false
		case o == ">":
			return true
		case is[i] == ">" || o != "*" && o != is[i]:
			return false
		}
	}
	return len(os) == len(is)
}
