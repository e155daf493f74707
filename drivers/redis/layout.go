package redis

import "strings"

// layout is where a driver keeps its locks, and which of the keys its calls
// name.
type layout struct {
	template
	// cluster has the server refuse scripts whose keys are in several hash slots.
	cluster bool
	// strict has the server refuse scripts that touch keys which the call does
	// not name, as Dragonfly does.
	strict bool
	// edit, if set, changes the source of each script.
	edit func(source string) string
	// marks are the names of the clock marks of a Cluster, by hash slot.
	marks []string
}

func newLayout(t template, cluster, strict bool) *layout {
	l := &layout{template: t, cluster: cluster, strict: strict}
	if cluster {
		l.marks = slotMarks(t)
	}
	return l
}

// declared reports whether a call names every key that its script may touch. On
// a Cluster that makes it answer TRYAGAIN while some of them are moved, instead
// of working on half a lock.
func (l *layout) declared() bool { return l.cluster || l.strict }

// mark returns the name of the clock mark for a lock: the highest fence that was
// given. There is one on a server, and one in each hash slot of a Cluster.
func (l *layout) mark(holder string) string {
	if l.cluster {
		return l.marks[slotOf(holder)]
	}
	return l.holder("") + l.separator() + markSuffix // no key of a lock is empty
}

// constantMark is the mark as Lua has it in a script, or nil where each call
// names it.
func (l *layout) constantMark() string {
	if l.declared() {
		return "nil"
	}
	return luaString(l.mark(""))
}

// keys are all keys that a script on the lock with this holder key may touch,
// without the mark.
func (l *layout) keys(holder string) []string { return namesOf(holder, l.separator())[:] }

// slotCount is the number of hash slots of a Cluster.
const slotCount = 16384

// slotMarks returns for each hash slot a name in it that is the name of no lock:
// there are as many marks as slots, whatever the number of locks.
func slotMarks(t template) []string {
	marks := make([]string, slotCount)
	for i, found := 0, 0; found < slotCount; i++ {
		name := t.holder(base36(i))
		if slot := slotOf(name); marks[slot] == "" {
			marks[slot] = name + t.separator() + markSuffix
			found++
		}
	}
	return marks
}

func base36(n int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	var b [8]byte
	at := len(b)
	for {
		at--
		b[at] = digits[n%36]
		if n /= 36; n == 0 {
			return string(b[at:])
		}
	}
}

// slotOf returns the hash slot of a key: the CRC16 (XMODEM) of its hash tag, as
// the specification of Redis Cluster has it.
func slotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slotCount
}
