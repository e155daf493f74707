package protocol

import (
	"encoding/binary"
	"errors"
)

// ErrBody is the error for a body that does not match the format of its type.
var ErrBody = errors.New("the body of a frame is cut off or malformed")

// Decoder reads a body. After the first missing value it returns only zero
// values, and Err returns an error. The caller checks Err once, at the end.
type Decoder struct {
	b   []byte
	bad bool
}

// NewDecoder returns a decoder of body, whose bytes it does not copy.
func NewDecoder(body []byte) Decoder { return Decoder{b: body} }

// Err returns ErrBody if a value was missing.
func (d *Decoder) Err() error {
	if d.bad {
		return ErrBody
	}
	return nil
}

// Left returns how many bytes have not been read.
func (d *Decoder) Left() int { return len(d.b) }

func (d *Decoder) fail() { d.bad, d.b = true, nil }

// Byte reads a byte.
func (d *Decoder) Byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// Bool reads a value that Frame.Bool has written.
func (d *Decoder) Bool() bool {
	v := d.Byte()
	if v > 1 {
		d.fail()
	}
	return v == 1
}

// Uint reads a value that Frame.Uint has written.
func (d *Decoder) Uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// Count reads a number of elements of which each takes at least one byte of the
// body. It rejects a larger number, so that no caller allocates memory for it.
func (d *Decoder) Count() int {
	v := d.Uint()
	if v > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(v)
}

// Int reads a value that Frame.Int has written.
func (d *Decoder) Int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// String reads a text and returns a copy of it.
func (d *Decoder) String() string { return string(d.Bytes()) }

// Bytes reads bytes. It returns a part of the body, which is valid as long as
// the body is.
func (d *Decoder) Bytes() []byte {
	n := d.Count()
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// Fixed reads a text of n bytes that was written without its length.
func (d *Decoder) Fixed(n int) string {
	if n > len(d.b) {
		d.fail()
		return ""
	}
	v := string(d.b[:n])
	d.b = d.b[n:]
	return v
}

// Rest reads all remaining bytes; like Bytes it copies nothing.
func (d *Decoder) Rest() []byte {
	v := d.b
	d.b = nil
	return v
}
