package protocol

import (
	"errors"
	"io"
	"syscall"
)

// Hello is the first frame of a client, after the magic word.
type Hello struct {
	Speaks Versions
	PID    uint64
	File   string // the client's name at the socket
	Nonce  uint64 // the same as in the client's file
}

// Frame returns the frame.
func (h *Hello) Frame() *Frame {
	f := Begin(TypeHello).Rest([]byte(Magic)).Uint(h.Speaks.Newest).Uint(h.PID)
	return f.String(h.File).Uint(h.Nonce).Uint(h.Speaks.Oldest)
}

// ReadHello reads the fields of a hello that its version has.
func ReadHello(d *Decoder) (h Hello) {
	h.Speaks.Newest, h.PID = d.Uint(), d.Uint()
	h.Speaks.Oldest = h.Speaks.Newest
	if d.Left() > 0 {
		h.File = d.String()
	}
	if d.Left() > 0 {
		h.Nonce, h.Speaks.Oldest = d.Uint(), d.Uint()
	}
	return h
}

// HasEnded reports whether err means that the other side has closed the
// connection: its process has ended, or has closed it on purpose.
func HasEnded(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
