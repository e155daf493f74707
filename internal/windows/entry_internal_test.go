package windows

import (
	"strconv"
	"testing"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

func TestAKeyHasABoundedNumberOfTickets(t *testing.T) {
	var e entry
	for i := range driver.MaxTickets - 1 { // not by take, which would take seconds
		e.tickets = append(e.tickets, ticket{id: strconv.Itoa(i), seq: 1, waiting: true, cost: 1})
	}
	ask := func(id string, seq uint64) driver.Answer {
		rates := []driver.Rate{{N: 1, Per: time.Minute}}
		return e.take(&driver.Request{Rates: rates, Cost: 1, Ticket: id, Seq: seq, MaxWait: -1}, 1)
	}
	if a := ask("last", 1); a.Full || a.Again == 0 {
		t.Errorf("the last place: %+v", a)
	}
	if a := ask("more", 1); !a.Full || a.Again != 0 {
		t.Errorf("one ticket too many: %+v", a)
	}
	if a := ask("1", 1); a.Full || a.Again == 0 {
		t.Errorf("a ticket that waits has lost its place: %+v", a)
	}
}
