package settings

import (
	"errors"
	"os"
	"testing"
	"time"
)

func TestReaderThatWaitsEndsAtItsTimeout(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	failed := make(chan error, 1)
	go func() {
		_, err := readAll(r, time.Millisecond)
		failed <- err
	}()
	select {
	case err := <-failed:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the reader waits")
	}
}
