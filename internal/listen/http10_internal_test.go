package listen

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/request"
)

// An end of TLS completes an HTTP/1.0 answer for the client, as nginx with proxy_pass https.
func TestPartOfAnAnswerIsIncompleteInHTTP10OverTLS(t *testing.T) {
	begun, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	s, c := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/goexit":
			runtime.Goexit()
		case "/cut":
			close(begun)
			<-leave
		}
	})
	for _, path := range []string{"/whole", "/panic", "/goexit", "/cut"} {
		conn, err := tls.Dial("tcp", s.Addr().String(), c)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path)
		if path == "/cut" {
			<-begun
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_ = s.Drain(ended)
		}
		if all, err := io.ReadAll(conn); (err == nil) != (path == "/whole") {
			t.Errorf("%s ended with %v after %q", path, err, all)
		}
		_ = conn.Close()
	}
}

// net/http writes the last bytes of an answer after the handler.
func TestLastBytesThatCannotBeWrittenAreMissingInHTTP10(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer("main", l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		_, _ = io.WriteString(w, "part")
		_ = control.Flush()
		_ = control.SetWriteDeadline(time.Now()) // as if the client read nothing
		_, _ = io.WriteString(w, "last")
	}), slog.New(slog.DiscardHandler), &request.Host{})
	s.Serve(func(err error) { t.Error(err) })
	defer func() { _ = s.Drain(t.Context()) }()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n")
	if all, err := io.ReadAll(conn); err == nil {
		t.Errorf("%q is complete", all)
	}
}

func TestAWriteThatIsCutOffIsIncompleteInHTTP10(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(time.Minute))
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newConnections()
	k := &conn{Conn: server, conns: c}
	c.add(k)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = k.Write(make([]byte, 64<<20)) // more than the buffers of both ends
	}()
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	c.closeAll()
	<-written
	if n, err := io.Copy(io.Discard, client); err == nil {
		t.Errorf("a part of %d bytes is complete", n)
	}
}
