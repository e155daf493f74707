package redis

import (
	"strconv"
	"strings"
)

// layout defines where a driver keeps its locks, and which keys its calls name.
type layout struct {
	template
	// cluster means that the server refuses scripts with keys in several
	// hash slots.
	cluster bool
	// strict means that the server refuses scripts that use keys which the
	// call does not name, as Dragonfly does.
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

// declared reports whether a call names every key that its script may use. On a
// Cluster such a call is answered TRYAGAIN while some of the keys are being
// moved, and does not work on half a lock.
func (l *layout) declared() bool { return l.cluster || l.strict }

// mark returns the name of the clock mark for a lock: the highest fence so far.
// A server has one mark, a Cluster one in each hash slot.
func (l *layout) mark(holder string) string {
	if l.cluster {
		return l.marks[slotOf(holder)]
	}
	return l.holder("") + l.separator() + markSuffix // no key of a lock is empty
}

// constantMark returns the mark as a Lua literal, or nil where each call names
// it.
func (l *layout) constantMark() string {
	if l.declared() {
		return "nil"
	}
	return luaString(l.mark(""))
}

// slotCount is the number of hash slots of a Cluster.
const slotCount = 16384

// slotMarks returns a name for each hash slot that no lock can have: the number
// of marks is the number of slots, independent of the number of locks.
func slotMarks(t template) []string {
	marks := make([]string, slotCount)
	for i, found := 0, 0; found < slotCount; i++ {
		name := t.holder(strconv.FormatInt(int64(i), 36))
		if slot := slotOf(name); marks[slot] == "" {
			marks[slot] = name + t.separator() + markSuffix
			found++
		}
	}
	return marks
}

// slotOf returns the hash slot of a key: the CRC16 (XMODEM) of its hash tag, as
// in the specification of Redis Cluster.
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
