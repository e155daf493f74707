package redis

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// tokenLen is the length of every token; tokens of redislock have the same
// length.
const tokenLen = 22

// format is the version of the data that this package writes. L24
const format = "3"

// formatError is the first word of a script's error about another version.
const formatError = "MEGAFORMAT "

// otherFormat is the error of a call that has found data of another version. Its
// value is the script's error.
type otherFormat string

func (e otherFormat) Error() string { return formatText(string(e)) }

// formatText names both versions.
func formatText(text string) string {
	_, rest, _ := strings.Cut(text, formatError)
	other := strings.FieldsFunc(rest, func(r rune) bool { return !isWord(r) })
	if len(other) > 1 && other[1] == "limit" {
		return fmt.Sprintf("the limit has format %s, this program uses format %s", other[0], limitFormat)
	}
	return fmt.Sprintf("the lock has format %s, this program uses format %s", append(other, "unknown")[0], format)
}

func isWord(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' }

// The words of a value, which head.lua describes.
const (
	wordToken = iota
	wordVersion
	wordFence
	wordSpan
	wordMarks
	wordInbox
	wordHolder // the first of its words
)

// tail is the end of a value, from the inbox on: the part that is the same for
// each grant. It begins with a space.
func tail(inbox string, h driver.Holder) string {
	b := appendWord(make([]byte, 0, 96), strings.TrimPrefix(inbox, inboxes))
	return string(appendHolder(b, h))
}

// encodeHolder returns h as one line of words.
func encodeHolder(h driver.Holder) string {
	return strings.TrimPrefix(string(appendHolder(make([]byte, 0, 96), h)), " ")
}

// appendHolder appends since in µs, pid, worker, host, app, label and request,
// each after a space. Empty words at the end are left out.
func appendHolder(b []byte, h driver.Holder) []byte {
	end, since := len(b), int64(0)
	if !h.Since.IsZero() {
		since = h.Since.UnixMicro()
	}
	for _, n := range [...]int64{since, int64(h.PID), int64(h.Worker)} {
		if n == 0 {
			b = append(b, empty...)
			continue
		}
		b = strconv.AppendInt(append(b, ' '), n, 10)
		end = len(b)
	}
	for _, s := range [...]string{h.Host, h.App, h.Label, h.Request} {
		if b = appendWord(b, s); s != "" {
			end = len(b)
		}
	}
	return b[:end]
}

// empty is an empty word after its space.
const empty = " -"

// appendWord appends a space and s, percent-encoded where it would not be one word
// of a line.
func appendWord(b []byte, s string) []byte {
	if s == "" {
		return append(b, empty...)
	}
	b = append(b, ' ')
	for i := range len(s) {
		if c := s[i]; c > ' ' && c != '%' && c != 0x7f && s != empty[1:] {
			b = append(b, c)
		} else {
			b = append(b, '%', upper[c>>4], upper[c&15])
		}
	}
	return b
}

const upper = "0123456789ABCDEF"

func decodeWord(w string) string {
	if w == empty[1:] {
		return ""
	}
	if !strings.Contains(w, "%") {
		return w
	}
	s, err := url.PathUnescape(w)
	if err != nil {
		return ""
	}
	return s
}

// decodeHolder reads the words of a holder. Unreadable ones stay empty: another
// user of the key may have written anything, and nothing depends on them.
func decodeHolder(words []string) driver.Holder {
	var all [7]string
	copy(all[:], words)
	h := driver.Holder{Host: decodeWord(all[3]), App: decodeWord(all[4]), Label: decodeWord(all[5]), Request: decodeWord(all[6])}
	if since, err := strconv.ParseInt(all[0], 10, 64); err == nil && since > 0 && since < lastSince {
		h.Since = time.UnixMicro(since).UTC()
	}
	h.PID, _ = strconv.Atoi(all[1])
	h.Worker, _ = strconv.Atoi(all[2])
	return h
}

// lastSince is the end of the year 9999 in µs: JSON has no later times.
const lastSince = 253402300800_000_000

// decodeValue reads the value of a holder key. One that another version or another
// user of the key has written reads as zero.
func decodeValue(s string) (h driver.Holder, fence uint64) {
	words := strings.Split(s, " ")
	if len(words) < wordHolder || words[wordVersion] != format {
		return driver.Holder{}, 0
	}
	fence, _ = strconv.ParseUint(words[wordFence], 10, 53)
	return decodeHolder(words[wordHolder:]), fence
}

// decodeRecord reads the holder in a ticket's record: version, span, slots, tail.
func decodeRecord(s string) driver.Holder {
	words := strings.Split(s, " ")
	if len(words) < 4 || words[0] != format {
		return driver.Holder{}
	}
	return decodeHolder(words[4:])
}

// forced is the reason of a forced release, as force stores and sends it.
type forced struct {
	Reason string        `json:"reason"`
	By     driver.Holder `json:"by"`
}

// lostBy returns the error for a lost grant of key, with the server's record of
// the reason: empty if it has expired.
func lostBy(key, reason string) *driver.LostError {
	e := &driver.LostError{Key: key, Cause: driver.Expired}
	var f forced
	if reason != "" && json.Unmarshal([]byte(reason), &f) == nil {
		e.Cause, e.Reason, e.By = driver.Forced, f.Reason, f.By
	}
	return e
}
