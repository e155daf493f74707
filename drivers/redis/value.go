package redis

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// tokenLen is the length of every token; tokens of redislock have the same
// length.
const tokenLen = 22

// format is the version of the data that this package writes. L24
const format = "2"

// formatError is the first word of a script's error about another version.
const formatError = "MEGAFORMAT "

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

// value is the part of a holder key's value after the token.
type value struct {
	Version int           `json:"v"`
	Fence   uint64        `json:"fence"`
	Span    int           `json:"span"`
	Inbox   string        `json:"inbox"`
	Holder  driver.Holder `json:"holder"`
}

// tail is the end of a value, after the span: the part that is the same for
// each grant. It is built without encoding/json, because each request pays for
// it.
func tail(inbox string, h driver.Holder) string {
	b := make([]byte, 0, 192)
	b = append(b, `,"inbox":"`...)
	b = append(b, inbox...)
	b = append(b, `","holder":{`...)
	b = appendField(b, "app", h.App)
	b = appendField(b, "host", h.Host)
	b = appendNumber(b, "pid", h.PID)
	b = appendNumber(b, "worker", h.Worker)
	b = appendField(b, "label", h.Label)
	b = appendField(b, "request", h.Request)
	if !h.Since.IsZero() {
		b = appendName(b, "since")
		b = append(b, '"')
		b = h.Since.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	return string(append(b, "}}"...))
}

func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, `":`...)
}

func appendNumber(b []byte, name string, n int) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(appendName(b, name), int64(n), 10)
}

func appendField(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	b = appendName(b, name)
	if !plain(s) {
		quoted, _ := json.Marshal(s) //nolint:errchkjson // a string always can be
		return append(b, quoted...)
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// plain reports whether s needs no escaping in JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// decodeValue reads the value of a holder key. Another user of the key may have
// written anything; unreadable parts stay empty.
func decodeValue(s string) value {
	var v value
	if i := strings.IndexByte(s, '{'); i >= 0 {
		if json.Unmarshal([]byte(s[i:]), &v) != nil {
			return value{}
		}
	}
	return v
}

// decodeRecord reads a ticket's record: version, span, slots, tail.
func decodeRecord(s string) (driver.Holder, bool) {
	f := strings.SplitN(s, " ", 4)
	if len(f) != 4 || f[0] != format || !strings.HasPrefix(f[3], ",") {
		return driver.Holder{}, false
	}
	var v value
	if json.Unmarshal([]byte("{"+f[3][1:]), &v) != nil {
		return driver.Holder{}, false
	}
	return v.Holder, true
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
