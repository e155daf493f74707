package rendezvous

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
)

// Never is an expiry after all others: it is unknown how long the leases of the
// last hub are valid.
const Never = math.MaxInt64

// Record is the information that a hub leaves to the next one. Its values are
// bounds: no lease of the hub exceeds them.
type Record struct {
	Boot   [16]byte // the boot id of the machine during the hub's time; zero if the system does not report one
	PID    uint64   // process id of the hub
	Expiry int64    // no lease outlives it
	Fence  uint64   // no lease has a higher fence
	Epoch  int64    // time of day, in microseconds since 1970, at which the node's clock read 0; 0 if unknown
	Hub    uint64   // the number of the hub, which no other hub has; 0 if unknown
}

// The file holds two copies of the record, which are written in turn. If a
// write was cut short, the copy before it remains. That copy covers all leases
// that the hub has reported to a client.
const (
	magic      = "megahub\n"
	version    = 1
	copySize   = 80
	recordSize = 2 * copySize
)

// errForeign is the error if a file was not made by mega.
var errForeign = errors.New("it was not made by mega")

// entry is a copy of the record in the file, numbered by age.
type entry struct {
	number uint64
	record Record
}

// encode returns magic, version, checksum of the rest, number and record.
func (e entry) encode() []byte {
	b := make([]byte, 16, copySize)
	copy(b, magic)
	binary.BigEndian.PutUint32(b[8:], version)
	b = binary.BigEndian.AppendUint64(b, e.number)
	b = append(b, e.record.Boot[:]...)
	b = binary.BigEndian.AppendUint64(b, e.record.PID)
	b = binary.BigEndian.AppendUint64(b, uint64(e.record.Expiry))
	b = binary.BigEndian.AppendUint64(b, e.record.Fence)
	b = binary.BigEndian.AppendUint64(b, uint64(e.record.Epoch))
	b = binary.BigEndian.AppendUint64(b, e.record.Hub)
	binary.BigEndian.PutUint32(b[12:], checksum(b))
	return b
}

func checksum(b []byte) uint32 { return crc32.Checksum(b[16:], crc32.MakeTable(crc32.Castagnoli)) }

// decode returns the newer of the copies in a file's content.
//
// Content without a whole copy sets no bound and may be of this boot, so that
// the Expiry of its record is Never. Content that does not begin with the magic
// word is an error, and so is content of another version.
func decode(content []byte, boot [16]byte) (newest entry, err error) {
	if len(content) == 0 {
		return entry{}, nil
	}
	whole := false
	for at := 0; at < recordSize && at < len(content); at += copySize {
		e, ok, err := decodeCopy(content[at:min(at+copySize, len(content))])
		if err != nil {
			return entry{}, err
		}
		if ok && (!whole || e.number > newest.number) {
			newest, whole = e, true
		}
	}
	if !whole {
		newest.record = Record{Boot: boot, Expiry: Never}
	}
	return newest, nil
}

func decodeCopy(b []byte) (e entry, whole bool, err error) {
	if word := bytes.TrimRight(b[:min(len(b), len(magic))], "\x00"); !strings.HasPrefix(magic, string(word)) {
		return entry{}, false, errForeign
	}
	if len(b) < copySize || checksum(b) != binary.BigEndian.Uint32(b[12:]) {
		return entry{}, false, nil
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != version {
		return entry{}, false, fmt.Errorf("it has version %d, this process knows version %d: run one version of mega on it", v, version)
	}
	e.number = binary.BigEndian.Uint64(b[16:])
	copy(e.record.Boot[:], b[24:])
	e.record.PID = binary.BigEndian.Uint64(b[40:])
	e.record.Expiry = int64(binary.BigEndian.Uint64(b[48:]))
	e.record.Fence = binary.BigEndian.Uint64(b[56:])
	e.record.Epoch = int64(binary.BigEndian.Uint64(b[64:]))
	e.record.Hub = binary.BigEndian.Uint64(b[72:])
	return e, true, nil
}

// parseUUID returns the bytes of a UUID, or zero if text is not a UUID.
func parseUUID(text string) (id [16]byte) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(text), "-", ""))
	if err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// on returns the meaning of a record on a machine that was booted as boot: the
// times and queues of an earlier boot have ended, stored fences have not. If one
// of the boots is unknown, they may be the same.
func (r Record) on(boot [16]byte) Record {
	if unknown := ([16]byte{}); r.Boot != boot && r.Boot != unknown && boot != unknown {
		return Record{Fence: r.Fence}
	}
	return r
}
