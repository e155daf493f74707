//go:build linux || darwin

package grants

import (
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// copies is how often the driver for Redis may send a call within the second that
// a call may take.
const copies = 3

// onSlowLinks returns a server that half of the clients reach through links that
// become slow, whose delay varies, or that lose answers, and that stands still.
func onSlowLinks(t *testing.T) *storm {
	t.Helper()
	server := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
	far := redistest.StartProxy(t, server, nil)
	s := &storm{orders: orders{URL: server.URL()}, sameClock: true, repeats: true}
	s.place = func(o *orders, number int) {
		if number%2 == 0 {
			o.URL = far.URL()
		}
	}
	delay := func(d time.Duration) {
		far.Delay(redistest.Requests, d)
		far.Delay(redistest.Replies, d)
	}
	none := func() {}
	s.disturb = func(t *testing.T, killed int) {
		far.Heal() // the client that was killed was on the slow link until its end
		switch killed % 5 {
		case 0:
			delay(200 * time.Millisecond)
			s.meets(t, none)
		case 1: // no call has an answer in time
			delay(2 * time.Second)
			s.meets(t, none)
		case 2:
			s.meets(t, func() { delay(rand.N(30 * time.Millisecond)) })
		case 3: // the server has executed what nobody has an answer to
			far.Hold(redistest.Replies)
			s.meets(t, none)
			far.Reset()
		case 4:
			must(t, server.Pause())
			s.meets(t, none)
			must(t, server.Continue())
		}
	}
	s.look = s.open
	return s
}

// onStops returns a socket whose hub, the oldest client, leaves in order, or is
// stopped for longer than a call may take and then goes on, or is killed then.
func onStops(t *testing.T) *storm {
	t.Helper()
	s := onSocket(t)
	s.end = func(t *testing.T, killed int) {
		hub := s.alive[0]
		switch killed % 3 {
		case 0:
			must(t, hub.stdin.Close())
			if err := hub.Wait(); err != nil {
				t.Fatalf("the hub has left with %v\n%s", err, hub.stderr)
			}
			return
		case 1:
			must(t, hub.Pause())
			s.meets(t, func() {})
			must(t, hub.Continue())
			s.meets(t, func() {})
		case 2:
			must(t, hub.Pause())
			s.meets(t, func() {})
		}
		must(t, hub.Kill())
	}
	return s
}

// onStalls returns a socket whose clients stand still while its hub, the oldest one, is
// killed: the next hub is a process that knows nothing.
func onStalls(t *testing.T) *storm {
	t.Helper()
	const stall = 700 * time.Millisecond
	s := onSocket(t)
	var stalls sync.WaitGroup
	t.Cleanup(stalls.Wait)
	s.end = func(t *testing.T, _ int) {
		others := slices.Clone(s.alive[1:])
		for _, p := range others {
			must(t, p.Pause())
		}
		must(t, s.alive[0].Kill())
		stalls.Go(func() {
			time.Sleep(stall)
			for _, p := range others {
				_ = p.Continue() // it may have been killed
			}
		})
	}
	return s
}

// meets calls step until each client but the oldest has written a record for each
// of its callers: all of them have met the fault. A client that has no backend yet
// does not count.
func (s *storm) meets(t *testing.T, step func()) {
	t.Helper()
	want := map[int]int64{}
	for number := s.started - processes + 1; number < s.started; number++ {
		if size, began := s.size(number); began {
			want[number] = size + int64(callers*recordSize)
		}
	}
	for end := time.Now().Add(2 * time.Minute); len(want) > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the clients %v have stopped", want)
		}
		step()
		for number, least := range want {
			if size, _ := s.size(number); size >= least {
				delete(want, number)
			}
		}
	}
}

// size returns the size of the journal of a client, and whether there is one.
func (s *storm) size(number int) (int64, bool) {
	info, err := os.Stat(journalOf(s.dir, number))
	if err != nil {
		return 0, false
	}
	return info.Size(), true
}
