package nats

import (
	"math"
	"math/rand/v2"

	"github.com/nats-io/nats.go"
)

// maxBacklog bounds the messages of a topic that wait in the client, in bytes with
// the memory of each message.
const maxBacklog = 64 << 20

// messageMemory is the approximate memory of a waiting message beyond its bytes.
const messageMemory = 256

// backlog bounds the queue of the client in front of a topic. The client reads
// messages faster than a topic can hand each to many members, its queue has no
// bound, and the bound that it offers drops messages without their place. So the
// topic sheds the oldest messages, which takes less time than to read new ones, and
// reports them as a gap at their place (S10). Only the callback of one subscription
// at the server uses a backlog.
type backlog struct {
	most  int // bytes
	taken int // messages since the last look
	lost  int // messages since the last one that was taken
}

// newBacklog returns the backlog of a topic. Answers are not shed: they wait for
// nothing but their requester's own bound (S14).
func (t *topic) newBacklog() *backlog {
	if t.key == t.bus.inbox.key() {
		return &backlog{most: math.MaxInt}
	}
	return &backlog{most: t.bus.config.backlog}
}

// sheds reports whether m is lost because too many messages wait behind it. Once
// it has begun, shedding goes on until half of the bound is free, so that gaps are
// few. A message that is shed has others behind it, so the gap is reported: the
// client counts m itself until its callback returns.
func (b *backlog) sheds(m *nats.Msg) bool {
	const looks = 64 // messages from one look to the next
	most := b.most
	if b.lost > 0 {
		most /= 2
	} else if b.taken++; b.taken%looks != 0 {
		return false
	}
	messages, bytes, err := m.Sub.Pending()
	if err != nil || messages < 2 || bytes+messages*messageMemory <= most {
		return false
	}
	b.lost++
	return true
}

// takeOrShed handles a message of the server.
func (t *topic) takeOrShed(m *nats.Msg, b *backlog) {
	if b.sheds(m) {
		return // the requester of a request waits for its deadline
	}
	if b.lost > 0 {
		members := t.members.All()
		if n := len(members); t.key.queue != "" && n > 0 { // each message was for one member. S4
			i := rand.IntN(n)
			members = members[i : i+1]
		}
		for _, in := range members {
			in.sink.Gap(b.lost)
		}
		b.lost = 0
	}
	t.take(m)
}
