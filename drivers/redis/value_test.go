package redis

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/megaframework/mega/lock/driver"
)

var someHolders = []driver.Holder{
	{},
	{PID: 42},
	{Worker: 2},
	{Request: "-"},
	{App: "web", Host: "host-1", PID: 42, Worker: 3, Label: "nightly", Request: "r-1", Since: time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)},
	{App: `say "hi"`, Host: "100%", Label: "käse\u2028\x00", Request: "a\nb\x7f%20"},
	{Label: "\xff is not UTF-8"},
}

func TestTailIsReadBackAsItsHolder(t *testing.T) {
	for _, h := range someHolders {
		checkHolder(t, h)
	}
}

// checkHolder reports what is lost on the way through a value, a ticket's record
// and a slot's record.
func checkHolder(t *testing.T, h driver.Holder) {
	t.Helper()
	end := tail(inboxes+"ABC", h)
	if strings.ContainsAny(end, "\n\x00\x7f") || !strings.HasPrefix(end, " ABC") {
		t.Errorf("the tail of %+v is %q", h, end)
	}
	got, fence := decodeValue("0123456789012345678901 3 7 17 0pb" + end)
	if diff := cmp.Diff(h, got); diff != "" || fence != 7 {
		t.Errorf("tail %s, fence %d (-want +got)\n%s", end, fence, diff)
	}
	if diff := cmp.Diff(h, decodeRecord("3 17 1;0;1"+end)); diff != "" {
		t.Errorf("record with %s (-want +got)\n%s", end, diff)
	}
	lines := "3\n\n0\nlost\n\n" + encodeHolder(h) + "\n" + strings.TrimPrefix(strings.TrimPrefix(end, " ABC"), " ") + "\n\n"
	if r := decodeSlot(lines); r.by != h || r.last != h {
		t.Errorf("a slot has %+v, which %+v left; want %+v", r.last, r.by, h)
	}
}

// The scripts take the words of a value by their places: a holder must not be able
// to write another one.
func TestHolderCannotForgeAWord(t *testing.T) {
	for _, forged := range []string{"a b", " 3 5 1 0p evil", "-", "x\ty", "\n"} {
		h := driver.Holder{App: forged, Host: forged, Label: forged, Request: forged, PID: 1}
		if words := strings.Fields(tail(inboxes+"real", h)); len(words) != 8 || words[0] != "real" || words[2] != "1" {
			t.Errorf("%q: the tail is %q", forged, words)
		}
	}
}

func TestValueOfAnotherVersionHasNoHolder(t *testing.T) {
	for _, s := range []string{"", "x", "0123456789012345678901", `0123456789012345678901{"v":2,"fence":5}`, "0123456789012345678901 4 5 1 0 x 1 2 3 host"} {
		if h, fence := decodeValue(s); h != (driver.Holder{}) || fence != 0 {
			t.Errorf("%q was taken for %+v with fence %d", s, h, fence)
		}
	}
}

func TestReasonIsReadBack(t *testing.T) {
	by := driver.Holder{Host: "ops", PID: 1}
	why, err := json.Marshal(forced{Reason: "stuck since 3 o'clock", By: by})
	if err != nil {
		t.Fatal(err)
	}
	want := &driver.LostError{Key: "k", Cause: driver.Forced, Reason: "stuck since 3 o'clock", By: by}
	if diff := cmp.Diff(want, lostBy("k", string(why))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, gone := range []string{"", "3", "{"} {
		if e := lostBy("k", gone); e.Cause != driver.Expired {
			t.Errorf("reason %q: the cause is %s, want expired", gone, e.Cause)
		}
	}
}

func TestMessagesAreReadBack(t *testing.T) {
	for text, want := range map[string]message{
		"g2 0123456789012345678901 1795189625145255 3 mega:{a b}": {kind: "g2", token: "0123456789012345678901", fence: 1795189625145255, slot: 3, name: "mega:{a b}"},
		"w2 0123456789012345678901 250":                           {kind: "w2", token: "0123456789012345678901", left: 250 * time.Millisecond},
		`f2 0123456789012345678901 {"reason":"a b"}`:              {kind: "f2", token: "0123456789012345678901", reason: `{"reason":"a b"}`},
	} {
		if got, ok := decodeMessage(text); !ok || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "g2", "g2 t", "g2 t 1", "g2 t 1 2", "g2 t x 2 k", "g2 t 1 x k", "g2 t 1 -1 k", "g2 t 9007199254740992 1 k", "f2", "f2 t", "f2  r", "w2", "w2 t", "w2 t x", "g3 t 1 2 k"} {
		if got, ok := decodeMessage(text); ok {
			t.Errorf("%q was taken for %+v", text, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("0123456789012345678901 3 1795189625145255 17 0 x 1795189625145255 1 2 host app label request")
	f.Add("3 17 1 x 9223372036854775807 1 - %zz")
	f.Add("g2 0123456789012345678901 1795189625145255 3 mega:{k}")
	f.Add(`f2 0123456789012345678901 {"reason":"r","by":{}}`)
	f.Fuzz(func(t *testing.T, s string) {
		one, _ := decodeValue(s)
		two := decodeRecord(s)
		slot := decodeSlot(s)
		for _, h := range []driver.Holder{one, two, slot.by, slot.last} {
			checkHolder(t, h)
			if _, err := json.Marshal(h); err != nil {
				t.Errorf("the holder in %q: %v", s, err)
			}
		}
		if m, ok := decodeMessage(s); ok && (m.slot < 0 || m.fence >= 1<<53 || m.token == "") {
			t.Errorf("%q was taken for %+v", s, m)
		}
		if e := lostBy("k", s); e.Key != "k" {
			t.Errorf("lost %q", e.Key)
		}
	})
}

func FuzzHolder(f *testing.F) {
	f.Add("web", "host-1", "käse %", "-", int64(1795189625145255), 42, 1)
	f.Fuzz(func(t *testing.T, app, host, label, request string, since int64, pid, worker int) {
		h := driver.Holder{App: app, Host: host, Label: label, Request: request, PID: pid, Worker: worker}
		if since > 0 && since < lastSince {
			h.Since = time.UnixMicro(since).UTC()
		}
		checkHolder(t, h)
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte(`[1,[0,5,"x"],["3 3 4 nobody"]]`))
	f.Add([]byte(`[[],null,{}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v any
		if json.Unmarshal(b, &v) != nil {
			return
		}
		a, err := check(integers(v), 0)
		if err != nil {
			return
		}
		s, err := decodeState("k", []any(a))
		if err == nil && (s.Key != "k" || len(s.Waiters) != len(a.sub(2)) && s.Skipped == "") {
			t.Errorf("%s was taken for %+v", b, s)
		}
	})
}

// integers makes of JSON what a client makes of RESP.
func integers(v any) any {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	}
	return v
}
