package nats

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// maxNames bounds how many subjects are known by heart.
const maxNames = 1024

// names puts a prefix before subjects, without making a text anew for each
// message: a program has few of them. It is copied when it learns one, which
// is rare.
type names struct {
	prefix string
	known  atomic.Pointer[map[string]string]
	mu     sync.Mutex // held while known is replaced
}

func (n *names) find(subject string) string {
	if known := n.known.Load(); known != nil {
		if name, ok := (*known)[subject]; ok {
			return name
		}
	}
	return n.learn(subject)
}

func (n *names) learn(subject string) string {
	name := n.prefix + subject
	n.mu.Lock()
	defer n.mu.Unlock()
	known := map[string]string{}
	if old := n.known.Load(); old != nil {
		if len(*old) == maxNames {
			return name
		}
		known = maps.Clone(*old)
	}
	known[strings.Clone(subject)] = name
	n.known.Store(&known)
	return name
}
