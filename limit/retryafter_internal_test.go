package limit

import (
	"net/http"
	"testing"
	"time"
)

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "1e9", "99999999999999999999", "Wed, 21 Oct 2015 07:28:00 GMT", " 5 "} {
		f.Add(s, "Wed, 21 Oct 2015 07:27:00 GMT")
	}
	f.Fuzz(func(t *testing.T, after, date string) {
		h := http.Header{"Retry-After": {after}, "Date": {date}}
		if d := retryAfter(h, time.Now()); d < 0 {
			t.Errorf("%q after %q is %v", after, date, d)
		}
	})
}
