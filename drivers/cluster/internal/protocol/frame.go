// Package protocol defines the frames between the processes of a node and their
// hub. It has no knowledge of locks and messages.
//
// A frame is its length, its type and its body. The length, four bytes with the
// least significant first, counts the type and the body; the type is a byte. A
// length of 0 or of more than [MaxFrame] ends the connection: the sender does
// not use this protocol.
//
// The methods of [Frame] write the values of a body, and a [Decoder] reads
// them. The Decoder detects every body that is too short.
package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// MaxFrame is the largest length of a frame: a message of the largest size and
// its envelope.
const MaxFrame = 1<<20 + 64<<10

// Type is the type of a frame, which defines the format of its body. A receiver
// ignores unknown types, so that a newer program can communicate with an older
// one.
type Type uint8

// head is the number of bytes before the type.
const head = 4

// ErrFull is the error if too many bytes wait to be written, so that a frame
// was not queued.
var ErrFull = errors.New("the line is full")

// FrameError is the error for a frame with an invalid length.
type FrameError struct{ Length uint32 }

func (e *FrameError) Error() string {
	return fmt.Sprintf("a frame of %d bytes: frames have 1 to %d", e.Length, MaxFrame)
}

// Frame is a frame that is being built, from [Begin] until it is sent. A frame
// can be sent to several lines.
type Frame struct{ b []byte }

var frames = sync.Pool{New: func() any { return &Frame{b: make([]byte, 0, usual)} }}

// usual is the size of a new frame's memory: most messages fit into it.
const usual = 256

// roomy is the size from which a frame's memory is not reused.
const roomy = 64 << 10

// Begin returns an empty frame. [Frame.Free] releases its memory for reuse.
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

// Len returns how many bytes the frame has on the line.
func (f *Frame) Len() int { return len(f.b) }

// Type returns the type.
func (f *Frame) Type() Type { return Type(f.b[head]) }

// Body returns the body, which is valid until the frame changes.
func (f *Frame) Body() []byte { return f.b[head+1:] }

// bytes returns the whole frame, including its length.
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

// Rest adds bytes without their number: they must be the end of the frame.
func (f *Frame) Rest(v []byte) *Frame { f.b = append(f.b, v...); return f }
