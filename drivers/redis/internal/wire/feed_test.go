package wire

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// FuzzFeed has any bytes arrive in two pieces at a leader or the client: what the
// leader handles, and what is left for the client, are together what has arrived.
func FuzzFeed(f *testing.F) {
	const message = "*3\r\n$7\r\nmessage\r\n$5\r\ninbox\r\n$"
	for _, seed := range []string{
		message + "2\r\nab\r\n", message + "0\r\n\r\n" + message + "3\r\n\r\n$\r\n", message + "x\r\n", message + "-1\r\n", message + "9223372036854775807\r\nx",
		"*3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n" + message + "1\r\na\r\n", "+PONG\r\n", "-ERR no\r\n", "\r\n", "*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\na\r\n",
	} {
		f.Add([]byte(seed), len(seed)/2)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if cut < 0 || cut > len(b) {
			return
		}
		var seen []byte
		feed := new(Feed)
		feed.Follow("inbox", func(payload string) {
			seen = appendText(append(seen, message[:len(message)-1]...), payload)
		})
		tap := &tap{feed: feed}
		mine := true
		for _, piece := range [][]byte{b[:cut], b[cut:]} {
			tap.in = append(tap.in, piece...)
			if mine {
				mine = tap.pass()
			}
		}
		n := whole(tap.in)
		if n < 0 || n > len(tap.in) || !mine && bytes.HasPrefix(tap.in, []byte(message+"1\r\na\r\n")) {
			t.Fatalf("%d of %d bytes are whole, left for the client: %v", n, len(tap.in), !mine)
		}
		if got := append(seen, tap.in...); !bytes.Equal(got, b) {
			t.Fatalf("%q became %q", b, got)
		}
	})
}

// A client whose connection cannot be watched, or that has not subscribed, reads as
// from the connection itself.
func TestClientReadsAConnectionThatCannotBeWatched(t *testing.T) {
	for _, subscribed := range []bool{false, true} {
		near, far := net.Pipe()
		feed := new(Feed)
		feed.Follow("inbox", func(string) { t.Error("the message has a leader") })
		conn := &tap{Conn: near, feed: feed}
		text := []byte("*3\r\n$7\r\nmessage\r\n$5\r\ninbox\r\n$2\r\nab\r\n+PONG\r\n")
		go func() {
			if subscribed {
				if _, err := io.ReadFull(far, make([]byte, len(feed.channel.Load().subscribe))); err != nil {
					t.Error(err)
				}
			}
			for i := range text {
				if _, err := far.Write(text[i : i+1]); err != nil {
					t.Error(err)
				}
			}
		}()
		if subscribed {
			if _, err := conn.Write(feed.channel.Load().subscribe); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, text) {
			t.Errorf("got %q, %v", got, err)
		}
		if feed.Lead(t.Context(), time.Time{}, func() bool { return false }) {
			t.Error("it is led")
		}
		_ = conn.Close()
		if _, err := conn.Read(got); err == nil {
			t.Error("it is read after its end")
		}
		_ = far.Close()
	}
}

// The client's deadlines have no monotonic reading. A clock that is set back must not
// put off the ping of a silent subscription.
func TestDeadlineOfTheClientDoesNotMoveWithTheClock(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	conn := &tap{Conn: near, feed: new(Feed)}
	set := time.Now()
	if err := conn.SetReadDeadline(set.Add(time.Hour).Round(0)); err != nil {
		t.Fatal(err)
	}
	if d := conn.deadline; !strings.Contains(d.String(), " m=") || d.Sub(set) < time.Hour-time.Minute || d.Sub(set) > time.Hour+time.Minute {
		t.Errorf("the deadline is %v, %v after the call", d, d.Sub(set))
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil || !conn.deadline.IsZero() {
		t.Errorf("the deadline is %v, want none; %v", conn.deadline, err)
	}
}
