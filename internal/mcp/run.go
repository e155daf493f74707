package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/shell"
)

// commandResult is the answer of lock_exec and limit_exec.
type commandResult struct {
	Status int    `json:"status"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Note   string `json:"note,omitempty"` // about the lock
}

// capturing calls do with the standard files of a command, and returns the captured
// output with the exit status.
func capturing(p shell.Process, dir string, do func(shell.Process, shell.Stdio) error) (any, error) {
	in, err := os.Open(os.DevNull) // the input of this process is the protocol
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	out, err := newCapture()
	if err != nil {
		return nil, err
	}
	defer out.close()
	errs, err := newCapture()
	if err != nil {
		return nil, err
	}
	defer errs.close()
	var notes bytes.Buffer
	p.Stderr = &notes
	err = do(p, shell.Stdio{Dir: dir, In: in, Out: out.file, Err: errs.file})
	r := commandResult{Stdout: out.close(), Stderr: errs.close(), Note: strings.TrimSpace(notes.String())}
	if status, ok := errors.AsType[shell.Status](err); ok {
		r.Status = int(status)
		return r, nil
	}
	if r == (commandResult{}) {
		return nil, err
	}
	return r, err
}

// The sizes of the kept parts of an output, in bytes: the start, and the end, where
// errors usually are.
const (
	keptHead = 8 << 10
	keptTail = 24 << 10
)

// capture keeps the start and the end of the output that is written to file.
type capture struct {
	file    *os.File // of the command
	read    *os.File
	done    chan struct{}
	head    []byte
	tail    []byte
	written int64
}

func newCapture() (*capture, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &capture{file: w, read: r, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		_, _ = io.Copy(c, r) // until the end, or the deadline
	}()
	return c, nil
}

// Write keeps the parts of p that belong to the start or the end. Only the goroutine
// of the capture calls it.
func (c *capture) Write(p []byte) (int, error) {
	c.written += int64(len(p))
	rest := p
	if room := min(keptHead-len(c.head), len(rest)); room > 0 {
		c.head, rest = append(c.head, rest[:room]...), rest[room:]
	}
	c.tail = append(c.tail, rest...)
	if len(c.tail) > 2*keptTail {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-keptTail:]...)
	}
	return len(p), nil
}

// outputTime is how long close waits for the output of processes that the command has
// left behind.
const outputTime = time.Second

// close ends the capture and returns the text. It may be called again.
func (c *capture) close() string {
	_ = c.file.Close()
	_ = c.read.SetReadDeadline(time.Now().Add(outputTime))
	<-c.done
	_ = c.read.Close()
	tail := c.tail[max(len(c.tail)-keptTail, 0):]
	omitted := c.written - int64(len(c.head)+len(tail))
	text := string(c.head)
	if omitted > 0 {
		text += fmt.Sprintf("\n[%d bytes are left out]\n", omitted)
	}
	return strings.ToValidUTF8(text+string(tail), "\uFFFD")
}
