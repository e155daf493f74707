package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/suite"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// tally counts what arrives, and fails the test if a message arrives twice or
// out of order.
func tally(t *testing.T, b *bus.Bus, pattern string) (arrived func() map[int]bool) {
	t.Helper()
	var mu sync.Mutex
	seen, last := map[int]bool{}, 0
	_, err := b.Subscribe(t.Context(), pattern, func(_ context.Context, m *bus.Msg) error {
		n, err := strconv.Atoi(strings.TrimRight(string(m.Data), " "))
		mu.Lock()
		defer mu.Unlock()
		if err != nil || n <= last {
			t.Errorf("%d came after %d: %v", n, last, err)
		}
		last, seen[n] = n, true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() map[int]bool {
		mu.Lock()
		defer mu.Unlock()
		copied := map[int]bool{}
		for n := range seen {
			copied[n] = true
		}
		return copied
	}
}

// A link that stalls and breaks takes with it what was handed over: that is
// bounded, counted, reported by the next Flush, and not sent again. What still
// waited is sent.
func TestLossOnThePublishersConnectionIsReported(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, told := observe(t, nats.Config{URL: proxy.URL()})
	other := open(t, nats.Config{URL: server.URL()})
	arrived := tally(t, other, "n")
	publish(t, b, "n", "1")
	await(t, func() bool { return len(arrived()) == 1 })

	proxy.Hold(natstest.ToServer)
	const n = 5000
	publishNumbers(t, b, 2, n)
	flushed := make(chan error, 1)
	go func() { flushed <- b.Flush(t.Context()) }()
	proxy.Cut()
	proxy.Heal()
	connected(t, b, 1)
	if err := <-flushed; !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("the flush during the cut: %v", err)
	}
	publish(t, b, "n", strconv.Itoa(n+1))
	await(t, func() bool { return arrived()[n+1] })
	s, missing := b.Stats(), n+1-len(arrived())
	t.Logf("%d of %d missing, %d counted as lost", missing, n, s.Lost)
	if missing > int(s.Lost) || s.Lost == 0 || s.Lost > n/2 {
		t.Errorf("%d messages are missing, and %d are counted as lost", missing, s.Lost)
	}
	if lost := of[bus.PublishLost](told); len(lost) != 1 || lost[0].Messages != int(s.Lost) || lost[0].Bytes < 1000 {
		t.Errorf("the losses are reported as %v", lost)
	}
	if err := b.Flush(t.Context()); err != nil && !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("the flush after the cut: %v", err)
	}
	if err := b.Flush(t.Context()); err != nil {
		t.Errorf("a flush with everything reported: %v", err)
	}
}

// publishNumbers publishes the numbers from first to last in messages of 1 000 bytes.
func publishNumbers(t *testing.T, b *bus.Bus, first, last int) {
	t.Helper()
	payload := strings.Repeat(" ", 1000)
	for i := first; i <= last; i++ {
		publish(t, b, "n", strconv.Itoa(i)+payload)
	}
}

// What waits when the connection breaks during a Drain is sent on the next connection
// (S21, S28). The driver cluster goes on with the next hub in the same way.
func TestDrainGoesOnAfterALoss(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, _ := observe(t, nats.Config{URL: proxy.URL()})
	arrived := tally(t, open(t, nats.Config{URL: server.URL()}), "n")
	proxy.Hold(natstest.ToServer)
	const n = 5000
	publishNumbers(t, b, 1, n)
	drained := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		drained <- b.Drain(ctx)
	}()
	await(t, func() bool { state, _ := b.State(); return state == bus.StateDraining })
	proxy.Cut()
	proxy.Heal()
	if err := <-drained; !errors.Is(err, bus.ErrDisconnected) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the loss", err)
	}
	lost := int(b.Stats().Lost)
	if lost == 0 || lost > n/2 {
		t.Errorf("%d of %d messages are counted as lost", lost, n)
	}
	await(t, func() bool { return len(arrived()) >= n-lost })
}

// Close names the number of messages that a silent server has not confirmed, as Flush and
// Drain do.
func TestCloseNamesWhatASilentServerHasNotConfirmed(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	d, err := nats.OpenBus(t.Context(), nats.Config{URL: proxy.URL()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.New(d, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(natstest.ToServer)
	publish(t, b, "n", "1")
	publish(t, b, "n", "2")
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "2 accepted messages not confirmed") {
		t.Errorf("got %v", err)
	}
}

// A request that waits for a silent server fails with the connection. No later connection
// sends it, so that nothing is left to flush (S21).
func TestARequestThatFailedIsNotLeftToFlush(t *testing.T) {
	server := natstest.StartProcess(t)
	b := open(t, nats.Config{URL: server.URL()})
	if _, err := b.Request(t.Context(), "nobody", nil); !errors.Is(err, bus.ErrNoResponders) {
		t.Fatal(err)
	}
	server.Pause()
	const n = 4 // a new connection takes one of them
	var asking sync.WaitGroup
	for range n {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := b.Request(ctx, "nobody", make([]byte, 100<<10)); !errors.Is(err, bus.ErrDisconnected) {
				t.Error(err)
			}
		})
	}
	await(t, func() bool { return b.Stats().InFlight == n })
	server.Kill()
	asking.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Flush(ctx); err != nil {
		t.Error(err)
	}
}

// What was flushed with nil has arrived, however often the connection breaks
// meanwhile.
func TestFlushedMessagesSurviveCuts(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, other := open(t, nats.Config{URL: proxy.URL()}), open(t, nats.Config{URL: server.URL()})
	arrived := tally(t, other, "n")
	cuts := max(suite.Scaled(20), 5)
	ctx, cancel := context.WithCancel(t.Context())
	var cutting sync.WaitGroup
	var flushes atomic.Int64 // that returned nil
	cutting.Go(func() {
		for i := range cuts {
			before := flushes.Load()
			connected(t, b, uint64(i))
			await(t, func() bool { return flushes.Load() > before })
			proxy.Cut()
			await(t, func() bool { return b.Stats().Cuts > uint64(i) })
		}
		cancel()
	})
	accepted, safe := 0, map[int]bool{}
	for ctx.Err() == nil {
		batch := []int{}
		for range 50 {
			if err := b.Publish(t.Context(), "n", fmt.Append(nil, accepted+1)); err != nil {
				t.Fatal(err)
			}
			accepted++
			batch = append(batch, accepted)
		}
		if b.Flush(t.Context()) == nil {
			flushes.Add(1)
			for _, i := range batch {
				safe[i] = true
			}
		}
	}
	cutting.Wait()
	_ = b.Flush(t.Context())
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, b, "n", strconv.Itoa(accepted+1))
	await(t, func() bool { return arrived()[accepted+1] })
	have, missing := arrived(), 0
	for i := 1; i <= accepted; i++ {
		if !have[i] {
			missing++
		}
		if safe[i] && !have[i] {
			t.Errorf("%d was flushed, and has not arrived", i)
		}
	}
	lost := b.Stats().Lost
	t.Logf("%d accepted, %d flushed, %d missing, %d counted as lost in %d cuts", accepted, len(safe), missing, lost, cuts)
	if missing > int(lost) || len(safe) == 0 {
		t.Errorf("%d of %d messages are missing, and %d are counted as lost", missing, accepted, lost)
	}
}

// A slow link is not cut, whatever waits for it: nothing is lost, and the
// publisher feels it.
func TestSlowLinkIsBackPressure(t *testing.T) {
	t.Parallel()
	const (
		rate   = 1 << 20
		buffer = 2 << 20 // 2s on the link
		ping   = 500 * time.Millisecond
	)
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	proxy.Slow(rate)
	b, told := observe(t, nats.Hasty(nats.Config{URL: proxy.URL(), Buffer: buffer}, ping, 5*time.Second))
	other := open(t, nats.Config{URL: server.URL()})
	arrived := tally(t, other, "n")
	payload := strings.Repeat(" ", 10_000)
	accepted, overloaded := 0, 0
	for began := time.Now(); time.Since(began) < 5*ping; {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		switch err := b.Publish(ctx, "n", []byte(strconv.Itoa(accepted+1)+payload)); {
		case err == nil:
			accepted++
		case errors.Is(err, bus.ErrOverloaded), errors.Is(err, context.DeadlineExceeded):
			overloaded++
		default:
			t.Fatal(err)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.Flush(ctx); err != nil {
		t.Errorf("flush: %v", err)
	}
	await(t, func() bool { return len(arrived()) == accepted })
	if s := b.Stats(); s.Cuts != 0 || s.Lost != 0 || overloaded == 0 || len(of[bus.Disconnected](told)) != 0 {
		t.Errorf("%d accepted, %d cuts, %d lost, %d overloaded", accepted, s.Cuts, s.Lost, overloaded)
	}
}

// A link on which nothing arrives any more is found out, although a little is
// published all the time.
func TestDeadLinkIsFoundOutUnderATrickle(t *testing.T) {
	t.Parallel()
	const ping = 200 * time.Millisecond
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b := open(t, nats.Hasty(nats.Config{URL: proxy.URL()}, ping, time.Second))
	proxy.Hold(natstest.ToServer, natstest.ToClient)
	began := time.Now()
	await(t, func() bool {
		publish(t, b, "n", "x")
		return b.Stats().Cuts == 1
	})
	t.Logf("found out after %v", time.Since(began))
	proxy.Heal()
	connected(t, b, 1)
}

// Without room a publish waits in every state of the connection: it goes on
// when there is room, and ends with its context.
func TestPublishWaitsForRoomWhileDisconnected(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b := open(t, nats.Config{URL: server.URL(), Buffer: 64 << 10})
	arrived := tally(t, b, "n")
	server.Stop()
	await(t, func() bool { state, _ := b.State(); return state == bus.StateDisconnected })
	payload, n := strings.Repeat(" ", 10_000), 0
	for ; ; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := b.Publish(ctx, "n", []byte(strconv.Itoa(n+1)+payload))
		cancel()
		if errors.Is(err, bus.ErrOverloaded) && errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil || n > 100 {
			t.Fatalf("after %d: %v", n, err)
		}
	}
	waited := make(chan error, 1)
	go func() { waited <- b.Publish(t.Context(), "n", []byte(strconv.Itoa(n+1)+payload)) }()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("the publish that waited: %v", err)
	}
	await(t, func() bool { return len(arrived()) == n+1 })
}

// A server that takes fewer subscriptions than before refuses one of them without
// its name, so that all are made again. What they lose meanwhile has a mark (S4).
func TestSubscriptionsThatAreMadeAgainAreToldOfTheirLoss(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, told := observe(t, nats.Config{URL: proxy.URL()})
	patterns := []string{"a.x", "a.*", "a.>", "*.x"}
	ended := make([]atomic.Bool, len(patterns))
	for i, pattern := range patterns {
		last := -1
		if _, err := b.Subscribe(t.Context(), pattern, func(_ context.Context, m *bus.Msg) error {
			switch n, err := strconv.Atoi(string(m.Data)); {
			case err != nil:
				ended[i].Store(true)
			case n != last+1 && m.Missed == 0:
				t.Errorf("%s received %d after %d", pattern, n, last)
				last = n
			default:
				last = n
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Refuse(true)
	server.Stop()
	server.Change(func(o *natstest.Options) { o.MaxSubs = len(patterns) - 1 })
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	flood, err := natsgo.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	proxy.Refuse(false)
	for n := 0; len(of[bus.Connected](told)) == 0; n++ {
		_ = flood.Publish("ev.a.x", strconv.AppendInt(nil, int64(n), 10))
		_ = flood.Flush() // a flood without pauses is more than a busy machine handles in time
	}
	await(t, func() bool {
		_ = flood.Publish("ev.a.x", []byte("end")) // behind the others, or its mark would be theirs
		n := 0
		for i := range ended {
			if ended[i].Load() {
				n++
			}
		}
		return n == len(patterns)-1
	})
}
