// Package output collects the output of a program under test.
package output

import (
	"bytes"
	"sync"
)

// Buffer is the output so far. The program may write while the test reads.
type Buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what has been written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
