package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/suite"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// A connection of which nobody says that it is gone is found out by pings.
// Until then and afterwards nobody waits longer than they want, and no more
// waits in memory than may.
func TestHalfOpenConnectionIsFoundOut(t *testing.T) {
	const (
		ping   = 200 * time.Millisecond
		budget = 3 * ping // for two that were not answered, and the next one
		buffer = 1 << 20

		attempt = 4 * time.Second // to connect
		patient = attempt / 2     // more than anybody should wait
	)
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b := open(t, nats.Hasty(nats.Config{URL: proxy.URL(), Buffer: buffer}, ping, attempt))
	got := listen(t, b, "n.*")
	publish(t, b, "n.first", "0")
	next(t, got)

	proxy.Hold(natstest.ToServer, natstest.ToClient)
	began, found := time.Now(), time.Duration(0)
	before, accepted, refused := heap(), 0, 0
	payload := []byte(strings.Repeat("x", 16<<10))
	// It goes on until after the first attempt to connect again.
	for refused < 20 || found == 0 || time.Since(began) < found+2*attempt {
		if time.Since(began) > 3*patience {
			t.Fatalf("after %v: %d refused, found out after %v", 3*patience, refused, found)
		}
		switch err := publishWithin(t, b, payload, patient); {
		case err == nil:
			accepted += len(payload)
		case errors.Is(err, bus.ErrOverloaded):
			refused++
		default:
			t.Fatal(err)
		}
		if state, err := b.State(); found == 0 && state == bus.StateDisconnected {
			found = time.Since(began)
			t.Logf("found out after %v: %v", found, err)
		}
	}
	if found < ping || found > budget+5*time.Second { // a busy machine is late
		t.Errorf("it was found out after %v, want about %v", found, budget)
	}
	asked := time.Now()
	if _, err := b.Request(t.Context(), "anything", nil); !errors.Is(err, bus.ErrDisconnected) || time.Since(asked) > patient {
		t.Errorf("a request: after %v: %v", time.Since(asked), err)
	}
	const system = 8 << 20 // what the two sockets and the proxy may have taken
	if most := 2*(buffer+len(payload)) + system; accepted > most {
		t.Errorf("%d bytes were accepted, want at most %d", accepted, most)
	}
	if grown := int64(heap() - before); grown > 8*buffer {
		t.Errorf("the memory has grown by %d", grown)
	}

	proxy.Heal()
	await(t, func() bool { state, _ := b.State(); return state == bus.StateConnected })
	publish(t, b, "n.last", "1")
	for m, missed := next(t, got), 0; ; m = next(t, got) {
		missed += m.Missed
		if m.Subject == "n.last" {
			if missed >= 0 {
				t.Error("nobody says that messages may have been lost")
			}
			break
		}
	}
}

// A server that falls silent while the subscriptions are made again is left like one
// that falls silent later.
func TestServerThatFallsSilentWhileSubscriptionsAreRestoredIsLeft(t *testing.T) {
	const ping = 200 * time.Millisecond
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b := open(t, nats.Hasty(nats.Config{
		URL:     proxy.URL(),
		Options: []natsgo.Option{natsgo.SetCustomDialer(muteAt(proxy, "SUB ev.n ", 2))},
	}, ping, time.Second))
	got := listen(t, b, "n")
	proxy.Cut()
	await(t, func() bool { _, err := b.State(); return err != nil && strings.Contains(err.Error(), "no byte moved") })
	proxy.Heal()
	connected(t, b, 1)
	publish(t, b, "n", "1")
	if m := next(t, got); m.Missed != -1 {
		t.Errorf("%d missed, want -1", m.Missed)
	}
}

// publishWithin does not want to wait, and has to be back about then.
func publishWithin(t *testing.T, b *bus.Bus, payload []byte, patient time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := b.Publish(ctx, "n.x", payload)
	if took := time.Since(began); took > patient {
		t.Errorf("publishing took %v", took)
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, bus.ErrOverloaded) {
		return fmt.Errorf("%w: a busy machine was late itself: %w", bus.ErrOverloaded, err)
	}
	return err
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// When a server goes away, its clients do not come back all at once, time
// after time.
func TestManyClientsSpreadTheirAttempts(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	clients := max(min(suite.Scaled(100), 100), 20)
	buses := make([]*bus.Bus, clients)
	var opened sync.WaitGroup
	for i := range buses {
		opened.Go(func() {
			d, err := nats.OpenBus(t.Context(), nats.Config{URL: proxy.URL()})
			if err != nil {
				t.Error(err)
				return
			}
			if buses[i], err = bus.New(d, bus.Config{}); err != nil {
				t.Error(err)
			}
		})
	}
	opened.Wait()
	if t.Failed() {
		return
	}
	const tries = 3 // a process that gets no processor for a while makes many attempts at once, then
	for try := 1; ; try++ {
		most, slices := spread(t, proxy, 3*clients)
		if most <= clients && slices >= 15 {
			break
		}
		if try == tries {
			t.Errorf("of more than %d attempts %d were made in one of %d slices", 3*clients, most, slices)
			break
		}
		for _, b := range buses {
			await(t, func() bool { state, _ := b.State(); return state == bus.StateConnected })
		}
	}
	for _, b := range buses {
		await(t, func() bool { state, _ := b.State(); return state == bus.StateConnected })
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// spread cuts all connections and refuses new ones until there were n attempts. It
// returns the most attempts in a slice of 10 ms, and the number of slices with any.
func spread(t *testing.T, proxy *natstest.Proxy, n int) (most, slices int) {
	t.Helper()
	proxy.Refuse(true)
	defer proxy.Refuse(false)
	had := len(proxy.Attempts())
	began := time.Now()
	proxy.Cut()
	await(t, func() bool { return len(proxy.Attempts())-had > n })
	const slice = 10 * time.Millisecond
	count := map[time.Duration]int{}
	attempts := proxy.Attempts()[had:]
	for _, at := range attempts {
		n := at.Sub(began) / slice
		count[n]++
		most = max(most, count[n])
	}
	t.Logf("%d attempts in %d slices of %v, at most %d in one", len(attempts), len(count), slice, most)
	return most, len(count)
}

// A server that cannot get rid of what is for this process disconnects it:
// that is told, by the state and by what is missed, and is over when the
// network is.
func TestSlowReaderIsDisconnectedAndRecovers(t *testing.T) {
	server := natstest.Start(t, natstest.Options{MaxPending: 1 << 20, WriteDeadline: 200 * time.Millisecond})
	proxy := natstest.StartProxy(t, server.URL())
	slow, other := open(t, nats.Config{URL: proxy.URL()}), open(t, nats.Config{URL: server.URL()})
	got := listen(t, slow, "n")
	publish(t, other, "n", "0")
	next(t, got)

	proxy.Hold(natstest.ToClient)
	payload := strings.Repeat(" ", 64<<10)
	published := 1
	for ; server.Clients() == 2; published++ {
		if published > 5000 {
			t.Fatal("the server keeps everything")
		}
		publish(t, other, "n", strconv.Itoa(published)+payload)
	}
	for end := published + 10; published < end; published++ {
		publish(t, other, "n", strconv.Itoa(published)) // for nobody
	}
	if err := other.Flush(t.Context()); err != nil { // the server has them before the slow one is back
		t.Fatal(err)
	}
	proxy.Heal()
	await(t, func() bool { return slow.Stats().Cuts == 1 })
	await(t, func() bool { state, _ := slow.State(); return state == bus.StateConnected && server.Clients() == 2 })
	publish(t, other, "n", "last")
	last, unknown := 0, 0
	for m := next(t, got); string(m.Data) != "last"; m = next(t, got) {
		n, err := strconv.Atoi(strings.TrimRight(string(m.Data), " "))
		if err != nil || n <= last {
			t.Fatalf("after %d came %.20q: %v", last, m.Data, err)
		}
		last = n
		if m.Missed < 0 {
			unknown++
		}
	}
	if last >= published-1 {
		t.Errorf("all of %d arrived, so nothing was slow", published)
	}
	if s := slow.Stats(); s.Total.Gaps != 1 || unknown > 1 {
		t.Errorf("the gap was told %d times, and said by %d messages before the last", s.Total.Gaps, unknown)
	}
}

// A message that this side has given up with its connection does not arrive later,
// when newer ones have arrived (S5): the system still holds a part of it.
func TestUnsentBytesOfASilentConnectionAreDiscarded(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, other := open(t, nats.Hasty(nats.Config{URL: proxy.URL()}, 200*time.Millisecond, time.Second)), open(t, nats.Config{URL: server.URL()})
	got := listen(t, other, "n")
	proxy.Hold(natstest.ToServer, natstest.ToClient)
	publish(t, b, "n", strings.Repeat("late", 200_000))
	await(t, func() bool { return b.Stats().Cuts == 1 })
	proxy.Heal()
	connected(t, b, 1)
	await(t, func() bool { return server.Clients() == 2 })
	publish(t, b, "n", "next")
	if m := next(t, got); string(m.Data) != "next" {
		t.Errorf("got %.10q, want next", m.Data)
	}
}

// A server that accepts connections and says nothing holds up neither OpenBus
// nor, later, Close.
func TestSilentServerDelaysNoCaller(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, idle := open(t, nats.Config{URL: proxy.URL()}), open(t, nats.Config{URL: proxy.URL()})
	publish(t, idle, "n", "0")
	if err := idle.Flush(t.Context()); err != nil { // it has nothing unconfirmed
		t.Fatal(err)
	}
	proxy.Hold(natstest.ToServer, natstest.ToClient)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := nats.OpenBus(ctx, nats.Config{URL: proxy.URL()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("open: %v", err)
	}
	publish(t, b, "n", "1")
	for _, c := range []nats.Config{{URL: "nats://127.0.0.1:1,nats://127.0.0.1:2"}, {URL: "nats://127.0.0.1:1"}} {
		if _, err := nats.OpenBus(t.Context(), c); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("open %s: %v", c.URL, err)
		}
	}
	flush, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	if err := b.Flush(flush); err == nil || !strings.Contains(err.Error(), "1 accepted messages") {
		t.Errorf("flush: %v", err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v", took)
	}
	began = time.Now()
	if err := idle.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > patience/4 {
		t.Errorf("close of an idle bus took %v", took)
	}
	proxy.Cut()
	await(t, func() bool { state, _ := b.State(); return state == bus.StateDisconnected })
	began = time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > patience/4 {
		t.Errorf("close during an attempt took %v", took)
	}
}

// lateReader is a connection whose reader notices its end only after Close, as one that
// has not run since.
type lateReader struct {
	net.Conn
	closed chan struct{}
}

func (l *lateReader) Dial(network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).Dial(network, address)
	return &lateReader{Conn: conn, closed: make(chan struct{})}, err
}

func (l *lateReader) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err == nil {
		return n, nil
	}
	<-l.closed
	return l.Conn.Read(b)
}

func (l *lateReader) Close() error {
	err := l.Conn.Close()
	if err == nil { // it is the first one
		close(l.closed)
	}
	return err
}

// S23: the driver closes the socket if a write fails. The cause of the loss is the
// failure, not the close.
func TestTheLossThatAWriteDetectsHasItsCause(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{})
	b, told := observe(t, nats.Config{URL: server.URL(), Options: []natsgo.Option{natsgo.SetCustomDialer(&lateReader{})}})
	if err := server.Drop(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		publish(t, b, "x", "")
		return len(of[bus.Disconnected](told)) > 0
	})
	err := of[bus.Disconnected](told)[0].Err
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want the error of the write", err)
	}
	connected(t, b, 1) // so that Close sends what waits
}
