package bustest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var bytesCases = []testCase{
	{rule: "S17", claim: "data of every size up to the limit arrive byte by byte", run: everySize},
}

// sizes returns the sizes at which buffers end: all small ones, those around
// every power of two and around multiples of common buffers, the largest, and
// some at random.
func sizes(most int) (all []int) {
	for n := range 65 {
		all = append(all, n)
	}
	for n := 128; n <= most; n *= 2 {
		all = append(all, n-1, n, n+1)
	}
	for _, buffer := range []int{1460, 4096, 32 << 10, 65_535} {
		for _, times := range []int{1, 3, 5} {
			all = append(all, times*buffer-1, times*buffer, times*buffer+1)
		}
	}
	for range suite.Scaled(10) {
		all = append(all, rand.IntN(most))
	}
	all = append(all, most-1, most)
	all = slices.DeleteFunc(all, func(n int) bool { return n > most })
	slices.Sort(all)
	return slices.Compact(all)
}

// pattern is data of a size in which no two places near each other are alike.
func pattern(size int) []byte {
	data := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(size), 42)) //nolint:gosec // the same each time
	for i := range data {
		data[i] = byte(r.Uint32()) | 1 // none is 0
	}
	return data
}

// same fails the case unless got is pattern(size).
func (e *env) same(got []byte, size int, what string) {
	want := pattern(size)
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), size) && got[at] == want[at] {
		at++
	}
	e.Fail("%s of %d bytes has %d, and is another from byte %d on", what, size, len(got), at)
}

// everySize sends each size as an event without and with a header, as a request
// and as its answer.
func everySize(e *env) {
	a, b := e.pair()
	header := bus.Header("key", "value")
	plain, headed := b.listen("plain"), b.listen("headed")
	b.respond("ask", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		return m.Data, bus.ReplyHeader(ctx, "size", fmt.Sprint(len(m.Data)))
	})
	const room = 100 // for the headers
	all := sizes(e.fits(a) - room)
	for _, n := range all {
		data := pattern(n)
		e.Must(a.Publish(e.Ctx, "plain", data), "publish %d bytes", n)
		e.Must(a.Publish(e.Ctx, "headed", data, header), "publish %d bytes with a header", n)
		m, err := a.Request(e.Ctx, "ask", data)
		e.Must(err, "request with %d bytes", n)
		e.same(m.Data, n, "an answer")
		e.Want(m.Header.Get("size") == fmt.Sprint(n), "the answer of %d bytes has the header %q", n, m.Header)
	}
	a.flush()
	e.drain(plain, headed)
	for what, in := range map[string]*inbox{"an event": plain, "an event with a header": headed} {
		e.Want(in.len() == len(all), "%d of %d events have come", in.len(), len(all))
		for i, m := range in.all() {
			e.same(m.Data, all[i], what)
		}
	}
}
