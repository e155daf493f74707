package bus

import (
	"context"
	"slices"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// compose checks and completes a message that is to be sent. It keeps neither
// m nor data.
func (b *Bus) compose(ctx context.Context, m *driver.Message, data []byte, opts []PubOption) error {
	if b.isClosed() {
		return ErrClosed
	}
	if ctx.Err() != nil { // S6
		return contextError(ctx)
	}
	if err := CheckSubject(m.Subject); err != nil {
		return err
	}
	if err := b.apply(m, opts); err != nil {
		return err
	}
	if err := b.inherit(ctx, m); err != nil {
		return err
	}
	if m.Kind == driver.Event && b.info.Scope == driver.Process {
		m.Local, m.Data = newAllotment(data) // S9
	} else {
		m.Data = b.own(data)
	}
	return b.checkSize(m)
}

// apply adds the headers, the id and the deadline of the options to the message.
func (b *Bus) apply(m *driver.Message, opts []PubOption) error {
	size := 0
	for i := range opts {
		switch o := &opts[i]; o.kind {
		case expiryOption:
			if o.expires <= 0 {
				return invalid("Expires is %v, want more than 0", o.expires)
			}
			m.Deadline = time.Now().Add(o.expires)
		case failOption:
			return o.err
		case headerOption, idOption:
			n, err := o.check()
			if err != nil {
				return err
			}
			size += n
			if m.Header == nil {
				m.Header = b.newHeader()
			}
			m.Header.Add(o.key, o.value)
		}
	}
	return checkBounds(len(m.Header), size)
}

// newHeader returns an empty header for a message to send.
func (b *Bus) newHeader() Headers {
	if h, ok := b.headers.Get().(Headers); ok {
		return h
	}
	return make(Headers)
}

// reuse keeps the header of a sent message for another one, if the driver has
// copied it. newHeader has made it, so no caller has it.
func (b *Bus) reuse(h Headers) {
	const most = 8 // keys; clearing a map that was large costs as much as that
	if b.info.Copies && h != nil && len(h) <= most {
		clear(h)
		b.headers.Put(h)
	}
}

// own returns data for a message whose sender may change its own data after the
// call: the same if the driver copies it, else a copy.
func (b *Bus) own(data []byte) []byte {
	if b.info.Copies && data != nil {
		return data
	}
	return clone(data)
}

// clone copies data, so that its owner may go on to use it. Nil becomes empty.
func clone(data []byte) []byte {
	if len(data) == 0 { // S18
		return []byte{}
	}
	own := make([]byte, len(data)) // S9
	copy(own, data)
	return own
}

// checkSize checks the front's own limit. The driver checks the backend's,
// which may change.
func (b *Bus) checkSize(m *driver.Message) error {
	// A checked header is smaller than this. To count its bytes would take as long
	// as all other checks together.
	const surely = 6 * MaxHeader
	if len(m.Data) <= b.config.MaxPayload-surely {
		return nil
	}
	return m.CheckSize(b.config.MaxPayload) // S17
}

// inherit copies to a message that a handler sends what the handled message
// passes on: its place in the chain, its trace and its baggage.
func (b *Bus) inherit(ctx context.Context, m *driver.Message) error {
	d := deliveryFrom(ctx)
	if d != nil {
		if d.hops >= MaxHops { // S25
			return ErrCycle
		}
		m.Hops = d.hops + 1
	}
	switch {
	case b.config.Inject != nil:
		b.inject(ctx, m)
	case d != nil && d.msg.Header != nil:
		passOn(d.msg.Header, m)
	}
	return nil
}

// inject calls the hook to add the trace of ctx, unless the caller has given its
// own. Values that cannot be sent are left out, since the caller did not set them.
func (b *Bus) inject(ctx context.Context, m *driver.Message) {
	traced := make(Headers)
	b.config.Inject(ctx, traced)
	if m.Header[KeyTraceParent] != nil {
		delete(traced, KeyTraceState)
	}
	for _, key := range traced.Keys() {
		if !isReserved(key) && m.Header[key] == nil {
			addIfFits(m, key, traced[key]...)
		}
	}
}

// passOn copies the trace and the baggage of the message being handled, unless
// the caller has given its own.
func passOn(from Headers, m *driver.Message) {
	if isTraceParent(from.Get(KeyTraceParent)) && m.Header[KeyTraceParent] == nil {
		addIfFits(m, KeyTraceParent, from.Get(KeyTraceParent))
		addIfFits(m, KeyTraceState, from.Values(KeyTraceState)...)
	}
	if m.Header[KeyBaggage] == nil {
		addIfFits(m, KeyBaggage, from.Values(KeyBaggage)...)
	}
}

// addIfFits adds the values that can be sent, and leaves out the others.
func addIfFits(m *driver.Message, key string, values ...string) {
	for _, v := range values {
		if m.Header == nil {
			m.Header = make(Headers, 2)
		}
		before := m.Header[key]
		m.Header[key] = append(slices.Clip(before), v)
		if checkHeader(m.Header) == nil {
			continue
		}
		m.Header[key] = before
		if before == nil {
			delete(m.Header, key)
		}
	}
}

// isTraceParent reports whether s is a W3C traceparent: 00-<32 hex>-<16 hex>-<2
// hex>, with ids that are not all zeros. Later versions may add to it.
func isTraceParent(s string) bool {
	const length = 55
	if len(s) < length || len(s) > length && (s[length] != '-' || s[:2] == "00") || s[:2] == "ff" {
		return false
	}
	if s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	version, trace, span, flags := s[:2], s[3:35], s[36:52], s[53:55]
	return isHex(version) && isHex(flags) && isHex(trace) && !isZero(trace) && isHex(span) && !isZero(span)
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; ('0' > c || c > '9') && ('a' > c || c > 'f') {
			return false
		}
	}
	return true
}

func isZero(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}
