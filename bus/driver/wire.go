package driver

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The header keys that carry the fields of a Message outside the process. All
// keys that begin with "Bus-" are reserved; handlers see only KeyID of them.
const (
	KeyID = "Bus-Id" // set by the sender; the bus does not use it

	keyHops      = "Bus-Hops"      // decimal
	keyExpires   = "Bus-Expires"   // of an event: milliseconds since 1970
	keyBudget    = "Bus-Budget"    // of a request: remaining milliseconds, rounded up
	keyError     = "Bus-Error"     // of an answer: the code; the text is its data
	keyRetryable = "Bus-Retryable" // of an answer with an error: "1"
	keyEnd       = "Bus-End"       // of an answer: "1"
)

// Wire returns the header to send: m.Header and a line for each field that is
// set, or nil without any. m.Header is not changed.
//
// An event's deadline is sent as a time of day, since the event may wait on
// its way; it is as exact as the clocks agree. A request's deadline is sent as
// the remaining time, which does not depend on clocks. Both are computed here: call
// Wire when the message is handed to the connection, and not when it is queued.
func (m *Message) Wire() Header {
	if !m.isMarked() {
		return m.Header
	}
	h := make(Header, len(m.Header)+3)
	maps.Copy(h, m.Header)
	m.eachMark(func(key, value string) { h.Set(key, value) })
	return h
}

// isMarked reports whether a field besides the header has to be sent.
func (m *Message) isMarked() bool {
	return m.Hops > 0 || m.End || m.Err != nil || m.Kind != Answer && !m.Deadline.IsZero()
}

func (m *Message) eachMark(do func(key, value string)) {
	if m.Hops > 0 {
		do(keyHops, strconv.Itoa(int(m.Hops)))
	}
	switch {
	case m.Deadline.IsZero():
	case m.Kind == Event:
		now := time.Now() // the time of day may have been set since the deadline was computed
		do(keyExpires, strconv.FormatInt(now.Add(m.Deadline.Sub(now)).UnixMilli(), 10))
	case m.Kind == Request:
		left := time.Until(m.Deadline) + time.Millisecond - 1 // rounded up: a responder does not end before its caller
		do(keyBudget, strconv.FormatInt(max(left.Milliseconds(), 1), 10))
	}
	if m.Err != nil {
		do(keyError, m.Err.Reason)
	}
	if m.Err != nil && m.Err.Retryable {
		do(keyRetryable, "1")
	}
	if m.End {
		do(keyEnd, "1")
	}
}

// FromWire returns the message that arrived with header h: the reverse of
// [Message.Wire]. Malformed reserved lines are ignored: their sender does not
// use this library. FromWire takes ownership of h and may change it.
func FromWire(k Kind, subject string, h Header, data []byte) Message {
	m := Message{Kind: k, Subject: subject, Data: slices.Clip(data)}
	if m.Data == nil {
		m.Data = []byte{}
	}
	if len(h) == 0 {
		return m
	}
	if hops := h.Get(keyHops); hops != "" { // parsing "" would allocate an error each time
		if n, err := strconv.ParseUint(hops, 10, 8); err == nil {
			m.Hops = uint8(n)
		}
	}
	switch k {
	case Event:
		m.Deadline = moment(h.Get(keyExpires), time.UnixMilli)
	case Request:
		m.Deadline = moment(h.Get(keyBudget), fromNow)
	case Answer:
		m.End = h.Get(keyEnd) != ""
		if reason := h.Get(keyError); reason != "" {
			m.Err = &RemoteError{Reason: reason, Message: string(data), Retryable: h.Get(keyRetryable) != ""}
		}
	}
	maps.DeleteFunc(h, func(key string, _ []string) bool { return key != KeyID && strings.HasPrefix(key, "Bus-") })
	if len(h) > 0 {
		m.Header = h
	}
	return m
}

// moment parses milliseconds; it returns the zero time for any other text.
func moment(text string, of func(ms int64) time.Time) time.Time {
	if text == "" {
		return time.Time{}
	}
	const most = 1 << 50 // some 35 000 years
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 || ms > most {
		return time.Time{}
	}
	return of(ms)
}

func fromNow(ms int64) time.Time {
	const year = 365 * 24 * time.Hour
	return time.Now().Add(time.Duration(min(ms, year.Milliseconds())) * time.Millisecond)
}

// Size returns the bytes of a backend's limit that the message takes: its data,
// and its header in the format of NATS. Every driver counts in this way, so
// that a message that is too large for one driver is too large for all. Numbers
// count with their largest width.
func (m *Message) Size() int {
	if len(m.Header) == 0 && !m.isMarked() {
		return len(m.Data)
	}
	const preamble, colon, newline, number = len("NATS/1.0\r\n"), len(": "), len("\r\n"), 16
	size := len(m.Data) + preamble + newline
	for key, values := range m.Header {
		for _, v := range values {
			size += len(key) + colon + len(v) + newline
		}
	}
	m.eachMark(func(key, value string) {
		size += len(key) + colon + max(len(value), number) + newline
	})
	return size
}

// CheckSize returns a *TooLargeError if the message is larger than limit; 0
// means no limit.
func (m *Message) CheckSize(limit int) error {
	if limit <= 0 || len(m.Data) <= limit && len(m.Header) == 0 && !m.isMarked() {
		return nil
	}
	if size := m.Size(); size > limit { // S17
		return &TooLargeError{Subject: m.Subject, Size: size, Limit: limit}
	}
	return nil
}
