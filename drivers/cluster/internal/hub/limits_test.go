package hub

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

// The goroutine of a call may reach the table after the end of its client's
// connection: its ticket must not delay the others for its grace (W7).
func TestATicketEndsWithItsClientAlsoDuringACall(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	here, there := net.Pipe()
	defer there.Close()
	c := newClient(h, here, "client")
	defer c.line.Close()
	r := driver.Request{Key: "k", Rates: []driver.Rate{{N: 1, Per: time.Minute}}, Cost: 1, MaxWait: -1}
	if a, err := h.limits.take(c, &r); err != nil || !a.Granted {
		t.Fatalf("the first unit: %+v, %v", a, err)
	}
	h.limits.leave(c)
	r.Ticket, r.Seq = "ticket", 1
	_, _ = h.limits.take(c, &r)
	s, err := h.limits.table.Inspect("k", r.Rates)
	if err != nil || len(s.Waiters) != 0 {
		t.Errorf("%d tickets wait after the end of their client, %v", len(s.Waiters), err)
	}
}
