// Package wire is how the processes of a node speak to their hub: frames over a
// connection. It knows nothing of locks and messages.
//
// A frame is its length, its type and its body. The length, four bytes with the
// least significant first, counts the type and the body; the type is a byte. A
// length of nothing or of more than [MaxFrame] ends the connection: whoever
// wrote it does not speak this language.
//
// What is in a body is written with the Append functions and read with a
// [Decoder], which finds every body that is too short.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// MaxFrame is the largest length of a frame: a message of the largest size, and its
// envelope.
const MaxFrame = 1<<20 + 64<<10

// Type says what the body of a frame is. One that is not known is ignored by
// its receiver, so that a newer program can speak to an older one.
type Type uint8

// head is how many bytes come before the type.
const head = 4

// ErrFull says that so much waits to be written that a frame was not taken.
var ErrFull = errors.New("the line is full")

// FrameError is a frame that cannot be one.
type FrameError struct{ Length uint32 }

func (e *FrameError) Error() string {
	return fmt.Sprintf("a frame of %d bytes: frames have 1 to %d", e.Length, MaxFrame)
}

// Frame is a frame that is being written, from [Begin] to its sending. A frame
// can be sent to several lines.
type Frame struct{ b []byte }

var frames = sync.Pool{New: func() any { return &Frame{b: make([]byte, 0, usual)} }}

// usual is the size of a new frame's memory: most messages fit.
const usual = 256

// roomy is the size from which a frame's memory is not kept.
const roomy = 64 << 10

// Begin returns an empty frame. [Frame.Free] gives its memory back.
func Begin(t Type) *Frame {
	f := frames.Get().(*Frame)
	f.b = append(f.b[:0], 0, 0, 0, 0, byte(t))
	return f
}

// Free ends the use of f.
func (f *Frame) Free() {
	if cap(f.b) <= roomy {
		frames.Put(f)
	}
}

// Len is how many bytes the frame has on the line.
func (f *Frame) Len() int { return len(f.b) }

// Body returns the body, which is valid until the frame changes.
func (f *Frame) Body() []byte { return f.b[head+1:] }

// bytes is the whole frame, its length included.
func (f *Frame) bytes() []byte {
	binary.LittleEndian.PutUint32(f.b, uint32(len(f.b)-head))
	return f.b
}

// Byte adds a byte.
func (f *Frame) Byte(v byte) *Frame { f.b = append(f.b, v); return f }

// Bool adds a byte, 1 for true.
func (f *Frame) Bool(v bool) *Frame {
	if v {
		return f.Byte(1)
	}
	return f.Byte(0)
}

// Uint adds a number, in as few bytes as it needs.
func (f *Frame) Uint(v uint64) *Frame { f.b = binary.AppendUvarint(f.b, v); return f }

// Int adds a number that may be negative.
func (f *Frame) Int(v int64) *Frame { f.b = binary.AppendVarint(f.b, v); return f }

// String adds a text and its length.
func (f *Frame) String(v string) *Frame { f.b = append(f.Uint(uint64(len(v))).b, v...); return f }

// Bytes adds bytes and their number.
func (f *Frame) Bytes(v []byte) *Frame { f.b = append(f.Uint(uint64(len(v))).b, v...); return f }

// Rest adds bytes without their number: they go to the end of the frame.
func (f *Frame) Rest(v []byte) *Frame { f.b = append(f.b, v...); return f }
