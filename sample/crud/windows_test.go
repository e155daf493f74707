package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/megaframework/mega/sample/crud/apps/main/handlers"
)

// The calls take turns of 800 ms. A machine that stands still for one of them
// allows more without a wait, but never more than five in any 800 ms.
func TestPartnerIsCalledFiveTimesPerWindow(t *testing.T) {
	kit := offline(t)
	var p handlers.WindowsPage
	kit.Post("/windows", map[string]any{"calls": 11, "way": "wait"}).Status(http.StatusOK).JSON(&p)
	if p.Result == nil || p.Result.Allowed != 11 || p.Result.Refused != 0 {
		t.Fatalf("the page: %+v, %+v", p, p.Result)
	}
	for i := 5; i < 11; i++ {
		if at := p.Result.At; at[i]-at[i-5] < 800 {
			t.Errorf("six calls within %d ms: %v", at[i]-at[i-5], at)
		}
	}
}

func TestCallsThatDoNotWaitAreAllowedOrRefused(t *testing.T) {
	kit := offline(t)
	var p handlers.WindowsPage
	kit.Post("/windows", map[string]any{"calls": 8}).Status(http.StatusOK).Contains(`"at":[]`).JSON(&p)
	if r := p.Result; r == nil || r.Allowed < 5 || r.Allowed+r.Refused != 8 || r.Refused > 0 && r.RetryAfter > 800 {
		t.Errorf("the page: %+v, %+v", p, p.Result)
	}
	kit.Post("/windows", strings.NewReader("calls=1&way=wait"), asForm, asPage).Status(http.StatusOK).Contains("1 allowed, 0 refused.")
	kit.Get("/windows", asPage, "Accept-Language: ko").Contains("<h1>호출 제한</h1>").Contains("800 ms마다 5건")
	for _, in := range []map[string]any{{"calls": 0}, {"calls": 21}, {"way": "luck"}} {
		kit.Post("/windows", in).Status(http.StatusUnprocessableEntity).Code("request.invalid")
	}
}

func TestPageOfLimitsIsLive(t *testing.T) {
	s := openShop(t)
	events := s.events(t, "/windows/live")
	events.await(t, "changed", "")
	end := make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() { // until the stream has seen some: a window is short
		for {
			a, err := s.send("POST", "/windows", `{"calls":6,"way":"wait"}`, asJSON)
			if err != nil || a.status != http.StatusOK {
				t.Errorf("%d %s, %v", a.status, a.body, err)
				return
			}
			select {
			case <-end:
				return
			default:
			}
		}
	})
	defer calls.Wait()
	defer close(end)
	events.await(t, "left", `"millis":`)
}
