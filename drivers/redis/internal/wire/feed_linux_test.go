package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// follower is a subscription of a client whose connections are taps: its goroutine
// reads, and goroutines of the test lead.
type follower struct {
	feed    *Feed
	client  *goredis.Client
	sub     *goredis.PubSub
	name    string
	got     chan string                // messages, whoever has read them
	others  chan *goredis.Subscription // what the client has read beside them
	pongs   chan string
	failed  chan error // reads of the client that failed
	silence time.Duration

	mu     sync.Mutex
	byRead int // messages that the client has read
}

// follow returns a follower on a server, after its subscription.
func follow(t *testing.T, addr string, silence time.Duration) *follower {
	t.Helper()
	f := &follower{
		feed: NewFeed(Dialer(attempt, nil)), name: "inbox:" + t.Name(), got: make(chan string, 1<<16),
		others: make(chan *goredis.Subscription, 100), pongs: make(chan string, 100), failed: make(chan error, 100), silence: silence,
	}
	f.client = goredis.NewClient(&goredis.Options{Addr: addr, Dialer: f.feed.Dialer, MaxRetries: -1, Protocol: 2})
	f.feed.Follow(f.name, func(payload string) { f.got <- payload })
	f.sub = f.client.Subscribe(t.Context(), f.name)
	if _, err := f.sub.ReceiveTimeout(t.Context(), attempt); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(func() { f.read(t.Context()) })
	t.Cleanup(func() {
		_ = f.sub.Close()
		_ = f.client.Close()
		reader.Wait()
	})
	return f
}

func (f *follower) read(ctx context.Context) {
	for {
		m, err := f.sub.ReceiveTimeout(context.WithoutCancel(ctx), f.silence)
		switch m := m.(type) {
		case *goredis.Message:
			f.mu.Lock()
			f.byRead++
			f.mu.Unlock()
			f.got <- m.Payload
		case *goredis.Subscription:
			f.others <- m
		case *goredis.Pong:
			f.pongs <- m.Payload
		default:
			if ctx.Err() != nil {
				return
			}
			select {
			case f.failed <- err:
			default:
			}
		}
	}
}

// lead leads until a message has arrived, and returns it.
func (f *follower) lead(t *testing.T) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		f.feed.Lead(t.Context(), end, func() bool { return len(f.got) > 0 })
		select {
		case m := <-f.got:
			return m
		default:
		}
		if time.Now().After(end) {
			t.Fatal("no message")
		}
	}
}

// begin leads on a goroutine, and returns when it reads. ended is closed when the
// lead has ended.
func (f *follower) begin(ctx context.Context, t *testing.T, until time.Time, ready func() bool) (ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		for !f.feed.Lead(ctx, until, ready) { // the client does not stand by yet
		}
	}()
	f.led(t)
	return ended
}

func never() bool { return false }

// led waits until a goroutine reads as a leader.
func (f *follower) led(t *testing.T) {
	t.Helper()
	if !comes(func() bool { return f.feed.current.Load().reading.Load() }) {
		t.Fatal("nobody leads")
	}
}

// comes waits until holds returns true, and reports whether it did. The states of a
// connection give no signal.
func comes(holds func() bool) bool {
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// standBy returns the connection when its client stands by. The caller has the turn.
func (f *follower) standBy(t *testing.T) *tap {
	t.Helper()
	tap := f.feed.current.Load()
	if !comes(func() bool {
		tap.turn.Lock()
		if !tap.standsBy {
			tap.turn.Unlock()
			return false
		}
		return true
	}) {
		t.Fatal("the client does not stand by")
	}
	return tap
}

func publish(t *testing.T, s *redistest.Server, channel, payload string) {
	t.Helper()
	if _, err := s.Do("PUBLISH", channel, payload); err != nil {
		t.Error(err)
	}
}

func TestLeaderReadsTheMessageItWaitsFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	for i := range 20 {
		payload := strings.Repeat("\r\n$7", i) + strconv.Itoa(i)
		ended := f.begin(t.Context(), t, time.Time{}, func() bool { return len(f.got) > 0 })
		publish(t, server, f.name, payload)
		<-ended
		if got := <-f.got; got != payload {
			t.Errorf("got %q, want %q", got, payload)
		}
	}
	if f.byRead != 0 {
		t.Errorf("the client has read %d messages", f.byRead)
	}
}

func TestClientReadsWithoutALeader(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	for i := range 20 {
		go publish(t, server, f.name, strconv.Itoa(2*i))
		if got := f.lead(t); got != strconv.Itoa(2*i) {
			t.Errorf("the leader has %q", got)
		}
		publish(t, server, f.name, strconv.Itoa(2*i+1))
		if got := <-f.got; got != strconv.Itoa(2*i+1) {
			t.Errorf("the client has %q", got)
		}
	}
	if f.byRead < 20 {
		t.Errorf("the client has read %d messages", f.byRead)
	}
}

// A message can wake the client while the turn is still that of a lead that ends.
func TestClientReadsAMessageThatArrivesAtTheEndOfALead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	tap := f.standBy(t)
	tap.led = true
	tap.watch.Disarm()
	publish(t, server, f.name, "here")
	tap.endLead()
	waits := comes(tap.wanted.Load)
	tap.turn.Unlock()
	if !waits {
		t.Fatal("the client does not wait for the turn")
	}
	if got := <-f.got; got != "here" {
		t.Errorf("got %q", got)
	}
}

// Each message is handled once and in order, whoever reads it, in pieces of any size.
func TestLeadersAndClientShareTheConnection(t *testing.T) {
	t.Parallel()
	for piece, messages := range map[int]int{0: 600, 1: 40, 7: 100, 60: 200} {
		messages = suite.Scaled(messages)
		t.Run(strconv.Itoa(piece), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			pipe := redistest.StartPipe(t, server.Addr())
			f := follow(t, pipe.Addr(), 20*time.Millisecond) // the client's reads end all the time
			pipe.Cut(redistest.Replies, piece)
			ctx, stop := context.WithCancel(t.Context())
			var leaders sync.WaitGroup
			for range 2 {
				leaders.Go(func() {
					for ctx.Err() == nil {
						own, end := context.WithTimeout(ctx, rand.N(2*time.Millisecond))
						f.feed.Lead(own, time.Now().Add(rand.N(2*time.Millisecond)), func() bool { return rand.N(3) == 0 })
						end()
						f.feed.Interrupt()
					}
				})
			}
			for i := range messages {
				publish(t, server, f.name, fmt.Sprint(i, strings.Repeat("x", rand.N(100))))
				if i%100 == 0 {
					if err := f.sub.Ping(t.Context(), strconv.Itoa(i)); err != nil {
						t.Error(err)
					}
				}
			}
			for i := range messages {
				if got := strings.TrimRight(<-f.got, "x"); got != strconv.Itoa(i) {
					t.Fatalf("message %d is %q", i, got)
				}
			}
			for i := 0; i < messages; i += 100 {
				if got := <-f.pongs; got != strconv.Itoa(i) {
					t.Errorf("pong %d is %q", i, got)
				}
			}
			stop()
			leaders.Wait()
		})
	}
}

// What a leader does not handle is for the client, which answers while somebody
// wants to lead.
func TestClientReadsWhatALeaderDoesNotHandle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	for range 20 {
		ended := f.begin(t.Context(), t, time.Time{}, never)
		if err := f.sub.Ping(t.Context(), "ping"); err != nil {
			t.Fatal(err)
		}
		if got := <-f.pongs; got != "ping" {
			t.Errorf("got %q", got)
		}
		<-ended
	}
	if err := f.sub.Subscribe(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	publish(t, server, "another", "of another channel")
	if got := f.lead(t); got != "of another channel" {
		t.Errorf("got %q", got)
	}
}

func TestEachEventEndsALead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	var ready atomic.Bool
	for name, lead := range map[string]struct {
		until time.Duration
		end   func(cancel context.CancelFunc)
	}{
		"its context":  {time.Hour, func(cancel context.CancelFunc) { cancel() }},
		"its time":     {time.Second, func(context.CancelFunc) {}},
		"an interrupt": {time.Hour, func(context.CancelFunc) { ready.Store(true); f.feed.Interrupt() }},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ready.Store(false)
		ended := f.begin(ctx, t, time.Now().Add(lead.until), ready.Load)
		lead.end(cancel)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end it", name)
		}
		cancel()
		publish(t, server, f.name, name) // the client has the connection again
		if got := <-f.got; got != name {
			t.Errorf("got %q, want %q", got, name)
		}
	}
}

// The silence of a subscription counts although somebody leads.
func TestLeaderDoesNotHideSilence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), 50*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			f.feed.Lead(ctx, time.Time{}, never)
		}
	}()
	f.led(t)
	for range 3 {
		if err := <-f.failed; !IsTimeout(err) {
			t.Errorf("the client reads %v, want a timeout", err)
		}
	}
	cancel()
	<-ended
}

// A leader whose connection ends leaves that to the client, which subscribes again,
// and the next leader reads the new connection.
func TestEndOfTheConnectionIsForTheClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	for range 5 {
		before := f.feed.current.Load()
		ended := f.begin(t.Context(), t, time.Time{}, never)
		if _, err := server.KillPubSub(); err != nil {
			t.Fatal(err)
		}
		<-ended
		if m := <-f.others; m.Kind != "subscribe" {
			t.Errorf("got %v", m)
		}
		if f.feed.current.Load() == before {
			t.Error("the connection is the same")
		}
		go publish(t, server, f.name, "here")
		if got := f.lead(t); got != "here" {
			t.Errorf("got %q", got)
		}
	}
}

func TestCloseEndsALead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	ended := f.begin(t.Context(), t, time.Time{}, never)
	_ = f.sub.Close()
	<-ended
	if f.feed.Lead(t.Context(), time.Time{}, never) {
		t.Error("a closed connection is led")
	}
}

// Connections that have ended leave no descriptors.
func TestEndedSubscriptionsLeaveNoDescriptors(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := count()
	for range 50 {
		if _, err := server.KillPubSub(); err != nil {
			t.Fatal(err)
		}
		<-f.others
	}
	for end := time.Now().Add(time.Minute); count() > before+10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, %d before", count(), before)
		}
	}
}

// A hostile context of a waiter does not keep the connection.
func TestPanicOfAContextEndsALead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	for led := false; !led; {
		func() {
			defer func() { led = recover() != nil }()
			f.feed.Lead(panicking{t.Context()}, time.Time{}, never)
		}()
	}
	publish(t, server, f.name, "here")
	if got := <-f.got; got != "here" {
		t.Errorf("got %q", got)
	}
}

type panicking struct{ context.Context }

func (panicking) Err() error { panic("a hostile context") }

// A large message is taken, and its memory given back.
func TestLargeMessageIsRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Hour)
	payload := strings.Repeat("x", 1<<20)
	go publish(t, server, f.name, payload)
	if got := f.lead(t); got != payload {
		t.Errorf("%d bytes arrive of %d", len(got), len(payload))
	}
	publish(t, server, f.name, payload)
	if got := <-f.got; got != payload {
		t.Errorf("%d bytes arrive of %d at the client", len(got), len(payload))
	}
	current := f.feed.current.Load()
	go publish(t, server, f.name, "small")
	f.lead(t)
	current.turn.Lock()
	defer current.turn.Unlock()
	if cap(current.in) > 1<<20 {
		t.Errorf("the connection keeps %d bytes", cap(current.in))
	}
}

// A caller of the client's own deadline gets the error that package net has for it.
func TestDeadlineOfTheClientIsATimeout(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := follow(t, server.Addr(), time.Millisecond)
	if err := <-f.failed; !errors.Is(err, os.ErrDeadlineExceeded) || !IsTimeout(err) {
		t.Errorf("got %v", err)
	}
}
