package nats

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// The server reports a refusal by an error on the connection, in the order of
// the refused messages. The client passes it to a callback on its own
// goroutine, without the subscription, and may return from a flush before the
// callback. So after a flush the caller must call [link.settle] before it draws
// a conclusion.

// refusals is the state of the errors of a link.
type refusals struct {
	mu    sync.Mutex    // guards the fields below
	heard error         // the latest error that the callback received
	tried []string      // the subjects among those that are tried out at the start
	login error         // why the server ends the connection of this user, or nil
	sent  int           // number of refusals that settle has provoked
	marks int           // number of them that the callback received
	news  chan struct{} // closed and replaced with each of them
}

func (r *refusals) init() { r.news = make(chan struct{}) }

// begin records the present error of a new client as received: it may be older than
// the connection, and then the callback never receives it.
func (r *refusals) begin(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heard == nil {
		r.heard = err
	}
}

func (r *refusals) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = err
	close(r.news)
	r.news = make(chan struct{})
}

func (r *refusals) addTried(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = append(r.tried, subject)
}

func (r *refusals) setLogin(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.login = err
}

// ofLogin returns the reason why the server has ended the connection of this user,
// or nil. The client forgets it when the connection then ends.
func (r *refusals) ofLogin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.login
}

// of returns the refused subjects among those that are tried out.
func (r *refusals) of(subjects ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.tried), func(s string) bool { return !slices.Contains(subjects, s) })
}

func (r *refusals) latest() (news <-chan struct{}, marks int, heard error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.news, r.marks, r.heard
}

// newMark returns the number of a refusal that the caller provokes. The server
// refuses in order, so that with as many of them all earlier errors have arrived.
func (r *refusals) newMark() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	return r.sent
}

func (r *refusals) addMark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks++
}

// settle returns when the callback has handled every error that the client has
// received, or when the link ends. The client makes a new error for each
// refusal, so that errors differ by identity. For some errors it has one value, which
// may be the latest error again while earlier ones wait for the callback. In that
// case settle provokes a new refusal, and waits for it: the server refuses a message
// with a reserved reply under any permissions.
func (l *link) settle() {
	mark := 0 // number of the provoked refusal
	for {
		news, marks, heard := l.refusals.latest()
		last := l.conn.LastError()
		switch {
		case last == nil, mark > 0 && marks >= mark:
			return
		case mark > 0:
		case isReused(last):
			mark = l.refusals.newMark()
			_ = l.conn.PublishRequest(l.bus.inbox.prefix+"mark", markReply, nil) // fails with the link
			_ = l.conn.FlushTimeout(forever)
			continue
		case last == heard: //nolint:errorlint // the very same
			return
		}
		select {
		case <-news:
		case <-l.over:
			return
		}
	}
}

// isReused reports whether the client has one value for all errors of that kind.
func isReused(err error) bool {
	return errors.Is(err, nats.ErrMaxSubscriptionsExceeded) || errors.Is(err, nats.ErrBadHeaderMsg)
}

// The reply subjects of refused messages. Only the server may use such subjects.
const (
	reservedReply = "_R_.mega"
	markReply     = "_R_.mark"
)

// failed handles an error that the server has sent. The client calls it on its
// own goroutine, one call at a time, in order.
func (l *link) failed(err error) {
	if errors.Is(err, nats.ErrBadHeaderMsg) {
		return // the message is delivered without its header, and there may be many
	}
	defer l.refusals.note(err)
	text := err.Error()
	switch reply := quotedAfter(text, withReply); {
	case l.bus.isTryout(err):
		l.refusals.addTried(refusedSubject(err))
	case errors.Is(err, nats.ErrMaxSubscriptionsExceeded):
		l.bus.refuseNameless(err)
	case isLogin(err):
		l.refusals.setLogin(err)
	case !errors.Is(err, nats.ErrPermissionViolation):
	case reply == markReply || l.bus.isMark(text):
		l.refusals.addMark()
	case reply == reservedReply:
	case strings.HasSuffix(text, tooManyTokens), !l.namesQueues && isRevoked(text):
		l.bus.refuseSubject(quotedAfter(text, toSubscription), err)
	case strings.Contains(text, toSubscription):
		key := topicKey{subject: quotedAfter(text, toSubscription), queue: quotedAfter(text, usingQueue)}
		l.bus.refuseTopic(key, err)
	default:
		l.bus.refusePublish(quotedAfter(text, toPublish), err)
	}
}

// isLogin reports whether the server no longer accepts the credentials.
func isLogin(err error) bool {
	return slices.ContainsFunc([]error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired},
		func(is error) bool { return errors.Is(err, is) })
}

func (b *Bus) isMark(text string) bool { return quotedAfter(text, toPublish) == b.inbox.prefix+"mark" }

// The words of the server's error before a quoted name.
const (
	toSubscription = "Subscription to "
	usingQueue     = "using queue "
	toPublish      = "Publish to "
	withReply      = "Publish with Reply of "
)

// tooManyTokens ends the server's error for a pattern with more tokens than the
// server allows. The error names the pattern and omits the queue.
const tooManyTokens = ", too many tokens"

// namesQueues reports whether a server of that version names the queue of a subscription
// whose permission is revoked. Servers before 2.12 omit it: every subscription to the subject
// counts as ended, because one that the server has ended must not stand in silence (S4).
func namesQueues(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && (major > 2 || major == 2 && minor >= 12)
}

// isRevoked reports whether the server has ended a subscription that it had confirmed.
func isRevoked(text string) bool {
	return strings.Contains(text, toSubscription) && strings.Contains(text, `" (sid "`)
}

// quotedAfter returns the quoted string that follows words in text, or "".
func quotedAfter(text, words string) string {
	_, rest, _ := strings.Cut(text, words)
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return ""
	}
	name, _ := strconv.Unquote(quoted) // it is quoted
	return name
}

// refusePublish handles the refusal of a message (S27). A request fails with the
// next PONG, an event is reported.
func (b *Bus) refusePublish(subject string, cause error) {
	err := fmt.Errorf("%w: %w", driver.ErrRefused, cause)
	if b.ledger.refuse(subject, err) {
		b.kickFlusher()
		return
	}
	b.notify(func(f driver.Front) { f.Refused(strings.TrimPrefix(subject, b.prefixes[driver.Event]), err) })
}

// refuse ends a topic that the server does not allow, or no longer allows:
// waiting calls of Subscribe fail, and so do the existing subscriptions. Requests
// in flight fail with the inbox, because their answers cannot arrive.
func (b *Bus) refuse(t *topic, cause error) {
	var stood []driver.Sink
	b.mu.Lock()
	if b.topics[t.key] != t {
		b.mu.Unlock()
		return // by an earlier refusal; or it has no member left
	}
	for _, m := range t.members.All() {
		if m.live {
			stood = append(stood, m.sink)
		}
	}
	delete(b.topics, t.key) // a later Subscribe tries again
	t.err = fmt.Errorf("%w: %w", driver.ErrRefused, cause)
	t.refused.Store(true)
	answerless := t.active && t.key == b.inbox.key()
	if t.active {
		b.endLater(t.sub) // the client still has it, the server does not
	} else {
		close(t.ready)
	}
	t.active = false
	b.mu.Unlock()
	b.notify(func(f driver.Front) {
		for _, s := range stood {
			s.Fail(fmt.Errorf("%w: %w", driver.ErrTerminated, cause))
		}
		if answerless { // S27
			f.Fail(0, fmt.Errorf("%w: no answer can arrive: %w", driver.ErrRefused, cause))
		}
	})
}

// refuseTopic handles a refusal that names a subscription.
func (b *Bus) refuseTopic(key topicKey, cause error) {
	b.mu.Lock()
	t := b.topics[key]
	b.mu.Unlock()
	if t != nil {
		b.refuse(t, cause)
	}
}

// refuseSubject handles a refusal of every subscription to a subject, in any group.
func (b *Bus) refuseSubject(subject string, cause error) {
	for _, t := range b.standing() {
		if t.key.subject == subject {
			b.refuse(t, cause)
		}
	}
}

// refuseLongest refuses the subscription with the longest names. The server has
// closed a connection because one of them is too long, and would close the next
// one, too.
func (b *Bus) refuseLongest(cause error) {
	length := func(t *topic) int { return len(t.key.subject) + len(t.key.queue) }
	if all := b.standing(); len(all) > 0 {
		b.refuse(slices.MaxFunc(all, func(x, y *topic) int { return length(x) - length(y) }), cause)
	}
}

// refuseNameless handles a refusal that names no subscription: it applies to
// one of those in progress.
func (b *Bus) refuseNameless(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nameless = cause
}
