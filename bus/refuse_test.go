package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
)

// Requests that are refused while the backend takes no answers wait without
// their data.
func TestRefusedRequestsKeepNoPayload(t *testing.T) {
	b, r := newRemoteBus(t, bus.Config{})
	hold := make(chan struct{})
	running := make(chan struct{}, 1)
	respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) {
		running <- struct{}{}
		<-hold
		return nil, nil
	}, bus.Concurrency(1), bus.Buffer(1, 1<<20))
	defer close(hold)
	r.set("Answer", nil, true)
	defer r.set("Answer", nil, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ask := func() {
		_, _ = b.Request(ctx, "a", make([]byte, 1<<19))
	}
	go ask()
	<-running
	before := heap()
	const n = 200
	ended := make(chan struct{}, n)
	for range n {
		go func() { ask(); ended <- struct{}{} }()
	}
	for deadline := time.Now().Add(10 * time.Second); b.Stats().Total.Received < n+1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d requests have come", b.Stats().Total.Received, n+1)
		}
	}
	cancel() // the askers let go of their data
	for range n {
		<-ended
	}
	if after := heap(); after > before+20<<20 {
		t.Errorf("%d refused requests of 512 KiB hold %d MiB", n, (after-before)>>20)
	}
}

// A responder that is stopped answers all requests in its queue at once, also while
// its handler is running.
func TestAStoppedResponderRefusesItsQueueAtOnce(t *testing.T) {
	for _, n := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			turn := make(chan struct{})
			s := respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) {
				<-turn
				return nil, nil
			}, bus.Concurrency(n))
			const requests = 8
			errs := make(chan error, requests)
			for range requests {
				go func() {
					_, err := b.Request(t.Context(), "a", nil)
					errs <- err
				}()
			}
			synctest.Wait()
			for range n { // the next handlers run, with others behind them
				turn <- struct{}{}
			}
			synctest.Wait()
			for range n {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			s.Stop()
			synctest.Wait()
			if waiting, st := len(errs), s.Stats(); waiting != requests-2*n || st.Discarded != uint64(waiting) || st.Pending != 0 {
				t.Errorf("concurrency %d: %d requests are answered, want %d: %+v", n, waiting, requests-2*n, st)
			}
			close(turn)
			synctest.Wait()
		})
	}
}
