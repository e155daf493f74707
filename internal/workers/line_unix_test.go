//go:build linux || darwin

package workers

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A process that a worker has started before it took its line, and that outlives
// it, does not hide its end: whoever reads the line finds that, and not that this
// side has closed it, which would say nothing of the worker.
func TestALineEndsWithItsWorkerThoughAChildKeepsIt(t *testing.T) {
	ended := make(chan error, 1)
	s := newRunner(runnerConfig{
		Workers: 1, Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 2 & kill -9 $$"}, Grace: time.Second,
		Permanent: func(int) bool { return true },
		Serve: func(_ *Process, conn net.Conn) {
			defer func() { _ = conn.Close() }()
			_, err := io.Copy(io.Discard, conn)
			ended <- err
		},
	})
	var spent *SpentError
	if err := s.Run(context.Background()); !errors.As(err, &spent) {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the line has ended with %v, want its end of file", err)
	}
}
