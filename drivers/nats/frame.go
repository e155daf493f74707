package nats

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// frame is where a message goes: to a subject that is prefix and subject. The
// message is kept apart, so that it need not be on the heap.
type frame struct{ prefix, subject, reply string }

// msg is the message as the client wants it.
func (f *frame) msg(m *driver.Message) *nats.Msg {
	return &nats.Msg{Subject: f.prefix + f.subject, Reply: f.reply, Header: nats.Header(m.Wire()), Data: m.Data}
}

// The words of NATS's protocol.
const (
	version = "NATS/1.0\r\n"
	crlf    = "\r\n"
)

// put writes the message to the pipe's queue in NATS's protocol,
//
//	PUB <subject> [reply] <bytes>CRLF<data>CRLF
//	HPUB <subject> [reply] <bytes of header> <bytes in all>CRLF<header><data>CRLF
//
// and says how long that is. What it writes was checked by the front, or came
// from the server. The caller holds p.mu.
func (f *frame) put(p *pipe, m *driver.Message) (n int) {
	p.lines = appendHeader(p.lines[:0], m)
	const rest = 64 // verb, spaces, numbers, line ends
	c := p.waiting.end(min(rest+len(f.prefix)+len(f.subject)+len(f.reply)+len(p.lines), chunkSize))
	before := len(c.data)
	c.data = f.appendHead(c.data, len(p.lines), len(m.Data))
	c.data = append(c.data, p.lines...)
	n = len(c.data) - before
	p.waiting.put(m.Data)
	p.waiting.put([]byte(crlf))
	return n + len(m.Data) + len(crlf)
}

// appendHeader appends nothing if the message has no header.
func appendHeader(b []byte, m *driver.Message) []byte {
	before := len(b)
	b = m.AppendWire(append(b, version...))
	if len(b) == before+len(version) {
		return b[:before]
	}
	return append(b, crlf...)
}

// appendHead appends the first line, for a header and data of this length.
func (f *frame) appendHead(b []byte, header, data int) []byte {
	if header > 0 {
		b = append(b, 'H')
	}
	b = append(b, "PUB "...)
	b = append(b, f.prefix...)
	b = append(b, f.subject...)
	b = append(b, ' ')
	if f.reply != "" {
		b = append(b, f.reply...)
		b = append(b, ' ')
	}
	if header > 0 {
		b = strconv.AppendInt(b, int64(header), 10)
		b = append(b, ' ')
	}
	b = strconv.AppendInt(b, int64(header+data), 10)
	return append(b, crlf...)
}
