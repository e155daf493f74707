package request

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// connection records the last deadline of reads.
type connection struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (c *connection) SetReadDeadline(t time.Time) error {
	c.read = t
	return nil
}

func (c *connection) SetWriteDeadline(time.Time) error {
	runtime.Gosched() // others wait for their turn
	return nil
}

// A stream lives on after the timeout of its request, which its deadline would end.
func TestReadDeadlineEndsWithTheBody(t *testing.T) {
	for range 20_000 {
		conn := &connection{ResponseRecorder: httptest.NewRecorder()}
		rec := &record{out: Response{w: conn}, timeout: &timeout{Context: context.Background(), deadline: time.Now()}}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
		limitBody(r, 1, rec)
		var all sync.WaitGroup
		all.Go(func() { _, _ = io.Copy(io.Discard, r.Body) })
		all.Go(func() { rec.out.Begin() })
		all.Go(func() { _ = rec.out.SetWriteDeadline(time.Now()) })
		all.Wait()
		if !conn.read.IsZero() {
			t.Fatal("the deadline of the request is left at the connection")
		}
	}
}
