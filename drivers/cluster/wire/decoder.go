package wire

import (
	"encoding/binary"
	"errors"
)

// ErrBody says that a body is not what its type promises.
var ErrBody = errors.New("the body of a frame is cut off or malformed")

// Decoder reads a body. After the first thing that is not there it answers with
// zero values only, and Err says so: the caller looks once, at the end.
type Decoder struct {
	b   []byte
	bad bool
}

// NewDecoder returns a decoder of body, whose bytes it does not copy.
func NewDecoder(body []byte) Decoder { return Decoder{b: body} }

// Err returns ErrBody if something was not there.
func (d *Decoder) Err() error {
	if d.bad {
		return ErrBody
	}
	return nil
}

// Left is how many bytes have not been read.
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

// Bool reads what Frame.Bool has written.
func (d *Decoder) Bool() bool {
	v := d.Byte()
	if v > 1 {
		d.fail()
	}
	return v == 1
}

// Uint reads what Frame.Uint has written.
func (d *Decoder) Uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// Count reads a number of things of which each takes at least one byte of the
// body: a larger one cannot be true, so that nobody makes room for it.
func (d *Decoder) Count() int {
	v := d.Uint()
	if v > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(v)
}

// Int reads what Frame.Int has written.
func (d *Decoder) Int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// String reads a text; it is a copy.
func (d *Decoder) String() string { return string(d.Bytes()) }

// Bytes reads bytes. They are the body's own, valid as long as it is.
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

// Rest reads all that is left; like Bytes it copies nothing.
func (d *Decoder) Rest() []byte {
	v := d.b
	d.b = nil
	return v
}
