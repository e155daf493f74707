package hub

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
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

// A process joins however many grants there are: they are not answers that it does
// not read.
func TestAProcessJoinsBesideManyGrants(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	h.limits.copied = true
	here, there := net.Pipe()
	defer there.Close()
	c := newClient(h, here, "client")
	defer c.line.Close()
	var rates []driver.Rate
	for i := range driver.MaxRates {
		rates = append(rates, driver.Rate{N: 1, Per: time.Hour + time.Duration(i)*time.Second})
	}
	for i := range maxAnswers / 1024 { // each record has more than 1 KiB
		r := driver.Request{Key: fmt.Sprintf("%0512d", i), Rates: rates, Cost: 1}
		if a, err := h.limits.table.Take(&r); err != nil || !a.Granted {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	h.limits.introduce(c)
	c.send(protocol.Begin(protocol.TypeOpen)) // as any answer
	if n := c.line.Backlog(); c.line.Err() != nil || n <= maxAnswers {
		t.Errorf("%d bytes wait, and the line has ended: %v", n, c.line.Err())
	}
}
