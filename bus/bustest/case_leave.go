package bustest

import (
	"strconv"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var leaveCases = []testCase{
	{rule: "S21", claim: "a backend that leaves in order while another process publishes loses nothing", needs: []fault{"Leave"}, run: leaveWhilePublishing},
}

func leaveWhilePublishing(e *env) {
	a, b := e.pair()
	all := b.listen("x.*")
	member := b.listen("x.y", bus.Group("g"))
	own := a.listen("x.y")
	n := 0
	stop := make(chan struct{})
	publisher := e.Async(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			n++
			a.publish("x.y", strconv.Itoa(n))
			e.Sleep(e.Unit / 500)
		}
	})
	for range suite.Scaled(3) {
		had := all.len()
		e.Soon("messages come", func() bool { return all.len() > had+50 })
		e.Must(e.h.Faults.Leave(), "replace the backend")
		e.isConnected(a, b)
	}
	close(stop)
	e.Await(publisher, "the publisher ends")
	a.flush()
	e.Want(a.Stats().Lost == 0, "%d messages are counted as lost", a.Stats().Lost)
	e.drain(all, member, own)
	for _, in := range []*inbox{all, member, own} {
		in.has(numbers(1, n)...)
	}
}
