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
	{App: "web", Host: "host-1", PID: 42, Worker: 3, Label: "nightly", Request: "r-1", Since: time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)},
	{App: `say "hi"`, Host: `back\slash`, Label: "käse\u2028\x00", Request: `,"pushed":1`},
	{Label: "\xff is not UTF-8"},
}

func TestTailIsReadBackAsItsHolder(t *testing.T) {
	for _, h := range someHolders {
		end := tail("mega:inbox:x", h)
		v := decodeValue("0123456789012345678901" + `{"v":2,"fence":7,"span":17` + end)
		want := value{Version: 2, Fence: 7, Span: 17, Inbox: "mega:inbox:x", Holder: h}
		want.Holder.Label = strings.ToValidUTF8(h.Label, "\ufffd")
		if diff := cmp.Diff(want, v); diff != "" {
			t.Errorf("tail %s (-want +got)\n%s", end, diff)
		}
		got, ok := decodeRecord("2 17 1 " + end)
		if diff := cmp.Diff(want.Holder, got); !ok || diff != "" {
			t.Errorf("record with %s: %v (-want +got)\n%s", end, ok, diff)
		}
	}
}

// The scripts look for `,"inbox":"` and `,"pushed":1` in values: a holder must
// not be able to write that.
func TestHolderCannotForgeAField(t *testing.T) {
	for _, forged := range []string{`,"inbox":"evil"`, `,"pushed":1`, `"}},"inbox":"evil`} {
		end := tail("real", driver.Holder{App: forged, Host: forged, Label: forged, Request: forged})
		if n := strings.Count(end, `"inbox":"`); n != 1 {
			t.Errorf("%s: the inbox is named %d times", end, n)
		}
		if strings.Contains(end, `,"pushed":1`) {
			t.Errorf("%s is marked as pushed", end)
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
	f.Add("0123456789012345678901" + `{"fence":7,"span":17,"inbox":"x","holder":{}}`)
	f.Add("1 1700000000000 17 1 ," + `"inbox":"x","holder":{"pid":1}}`)
	f.Add("g2 0123456789012345678901 1795189625145255 3 mega:{k}")
	f.Add(`f2 0123456789012345678901 {"reason":"r","by":{}}`)
	f.Fuzz(func(t *testing.T, s string) {
		_ = decodeValue(s)
		_, _ = decodeRecord(s)
		if m, ok := decodeMessage(s); ok && (m.slot < 0 || m.fence >= 1<<53 || m.token == "") {
			t.Errorf("%q was taken for %+v", s, m)
		}
		if e := lostBy("k", s); e.Key != "k" {
			t.Errorf("lost %q", e.Key)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte(`[1,[0,5,"x"],["2 3 4 ,{}"]]`))
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
