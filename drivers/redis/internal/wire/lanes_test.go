package wire

import (
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// L4, L5: a client replaces a connection in silence, also with retries. What has
// happened before the wire, and new connections alone, are nothing to report.
func TestLanesReportConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	for name, retries := range map[string]int{"without retries": -1, "with retries": 3} {
		t.Run(name, func(t *testing.T) {
			client := goredis.NewClient(&goredis.Options{Addr: s.Addr(), MaxRetries: retries})
			defer func() { _ = client.Close() }()
			end := func() {
				t.Helper()
				if _, err := s.KillClients(); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			end()
			for client.Ping(t.Context()).Err() != nil {
			}
			w := New(client, nil)
			defer func() { w.Close(); w.Wait() }()
			var reports, cuts atomic.Int32
			w.OnReconnect(func() { reports.Add(1) }, func() { cuts.Add(1) })
			call := func() {
				t.Helper()
				for {
					if _, err := echo(t.Context(), w, "x"); err == nil {
						return
					}
				}
			}
			call()
			if n := reports.Load(); n != 0 {
				t.Errorf("%d reports at first", n)
			}
			start := time.Now()
			for range 50 { // as a client whose users cut many connections
				end()
				before := cuts.Load()
				call()
				if cuts.Load() == before {
					t.Fatal("an end is not counted before the answer")
				}
				if reports.Load() == 0 {
					t.Fatal("no report before the answer")
				}
			}
			if n, most := reports.Load(), 1+int32(time.Since(start)/noticeEvery); n > most {
				t.Errorf("%d reports, want %d at most", n, most)
			}
			for end := time.Now().Add(time.Minute); w.ended.Load() != endedOf(client); call() {
				if time.Now().After(end) {
					t.Fatal("the last end is never reported")
				}
			}
		})
	}
}
