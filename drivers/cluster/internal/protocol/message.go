package protocol

import (
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// The frames about messages. A registration is the subscription of one process to
// a kind, a pattern and a group, and has a number that the process has chosen.
const (
	// From a client.
	TypeJoin     = TypeBus + iota // registration, kind, subscriptions, pattern, group: the registration begins
	TypeMembers                   // registration, subscriptions: the new number of subscriptions
	TypeLeave                     // registration: the registration ends
	TypeSync                      // number: the hub answers when it has handled all earlier frames
	TypeEvent                     // message
	TypeRequest                   // request, message
	TypeAnswer                    // client, request, whether this client has no other part of it, message
	TypeReturn                    // client, request (0 and the registration, of an event), the same, kind, pattern, group, message: no subscription takes it
	TypeNoMember                  // client, request: the asked subscription has left

	// From the hub.
	TypeSynced  // number
	TypeDeliver // whether to all without a group, registrations of groups, message
	TypeServe   // client, request, the same, message
	TypeReply   // request, message
	TypeFailed  // request, reason
	TypeGap     // registration, number of messages lost before the next one
)

// RequestID identifies a request: the number of the client that sent it, and that
// client's number of the request.
type RequestID struct{ Client, Number uint64 }

// ReadRequestID reads the client and the number of a request.
func ReadRequestID(d *Decoder) RequestID { return RequestID{d.Uint(), d.Uint()} }

// The reasons of TypeFailed.
const (
	FailNoResponder byte = iota
	FailGone
	FailFull
)

// The flags of a message: the optional fields that it has, in this order.
const (
	markHops byte = 1 << iota
	markDeadline
	markHeader
	markError
	markRetryable
	markEnd
)

// AddMessage writes m to the end of a frame: its subject first, so that the hub
// routes without reading the rest, and its data last.
func AddMessage(f *Frame, m *driver.Message) *Frame {
	marks := marksOf(m)
	f.String(m.Subject).Byte(marks)
	if marks == 0 {
		return f.Rest(m.Data)
	}
	if marks&markHops != 0 {
		f.Byte(m.Hops)
	}
	if marks&markDeadline != 0 {
		f.Int(toWall(m.Deadline)) // one node, one clock
	}
	if marks&markHeader != 0 {
		addHeader(f, m.Header)
	}
	if marks&markError != 0 {
		f.String(m.Err.Reason)
	}
	return f.Rest(m.Data)
}

// farAway is a time whose nanoseconds still fit into a number; a later time
// counts as never.
const farAway = 1 << 33 // in the year 2242

func marksOf(m *driver.Message) (marks byte) {
	if m.Hops > 0 {
		marks |= markHops
	}
	if !m.Deadline.IsZero() && m.Deadline.Unix() < farAway {
		marks |= markDeadline
	}
	if len(m.Header) > 0 {
		marks |= markHeader
	}
	if m.Err != nil {
		marks |= markError
		if m.Err.Retryable {
			marks |= markRetryable
		}
	}
	if m.End {
		marks |= markEnd
	}
	return marks
}

func addHeader(f *Frame, h driver.Header) {
	f.Uint(uint64(len(h)))
	for key, values := range h {
		f.String(key).Uint(uint64(len(values)))
		for _, v := range values {
			f.String(v)
		}
	}
}

// ReadMessage reads the fields that AddMessage has written after the subject.
// Its data is a copy.
func ReadMessage(k driver.Kind, subject string, d *Decoder) driver.Message {
	m := driver.Message{Kind: k, Subject: subject}
	marks := d.Byte()
	if marks != 0 {
		readMarked(marks, &m, d)
	}
	rest := d.Rest()
	m.Data = make([]byte, len(rest))
	copy(m.Data, rest)
	if m.Err != nil {
		m.Err.Message = string(rest)
	}
	return m
}

func readMarked(marks byte, m *driver.Message, d *Decoder) {
	if marks&markHops != 0 {
		m.Hops = d.Byte()
	}
	if marks&markDeadline != 0 {
		m.Deadline = fromWall(d.Int())
	}
	if marks&markHeader != 0 {
		m.Header = readHeader(d)
	}
	if marks&markError != 0 {
		m.Err = &driver.RemoteError{Reason: d.String(), Retryable: marks&markRetryable != 0}
	}
	m.End = marks&markEnd != 0
}

// ReadEvent reads a message that AddMessage has written to an empty frame.
func ReadEvent(body []byte) driver.Message {
	d := NewDecoder(body)
	return ReadMessage(driver.Event, d.String(), &d)
}

// DeadlineOf returns the deadline of a message that AddMessage has written, in
// nanoseconds since 1970, or 0 if it has none.
func DeadlineOf(tail []byte) int64 {
	d := NewDecoder(tail)
	d.Bytes() // the subject
	marks := d.Byte()
	if marks&markHops != 0 {
		d.Byte()
	}
	if marks&markDeadline == 0 {
		return 0
	}
	return d.Int()
}

// toWall converts an instant to a time of day, in nanoseconds since 1970. It reads
// the clock anew, because the clock may have been set since the instant was computed.
func toWall(t time.Time) int64 {
	now := time.Now()
	return now.Add(t.Sub(now)).UnixNano()
}

// fromWall converts a time of day, in nanoseconds since 1970, to an instant
// that does not move when the clock is set.
func fromWall(ns int64) time.Time {
	now := time.Now()
	return now.Add(time.Unix(0, ns).Sub(now.Round(0)))
}

func readHeader(d *Decoder) driver.Header {
	h := driver.Header{}
	for n := d.Count(); n > 0 && d.Err() == nil; n-- {
		key := d.String()
		h[key] = readValues(d)
	}
	return h
}

func readValues(d *Decoder) (values []string) {
	for n := d.Count(); n > 0 && d.Err() == nil; n-- {
		values = append(values, d.String())
	}
	return values
}
