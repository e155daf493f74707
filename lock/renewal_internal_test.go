package lock

import (
	"testing"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// L4, L12: a lease is renewed a third of its TTL after the last time, at most 10 s, or up to
// a sixteenth of that earlier: then the leases with this TTL have few times in common. A
// grant that lives for less than its TTL is renewed in time.
func TestRenewalsComeInTimeAndTogether(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, time.Second, 9 * time.Second, 30 * time.Second, time.Minute, MaxTTL} {
		interval := min(ttl/3, 10*time.Second)
		times := make(map[instant]struct{})
		const begin = instant(1_234_567_890_123_456)
		for now := begin; now < begin.add(interval); now = now.add(interval / 1000) {
			at := renewalTime(now, ttl, ttl)
			times[at] = struct{}{}
			if in := at.sub(now); in > interval || in < interval-interval/16 {
				t.Fatalf("TTL %v: renewed in %v, want %v or up to a sixteenth earlier", ttl, in, interval)
			}
			full := ttl - driver.Margin(ttl) // of a grant that was answered at once
			if in := renewalTime(now, ttl, full).sub(now); in > interval || in < min(interval, full/3)-interval/16 {
				t.Fatalf("TTL %v: a new grant is renewed in %v", ttl, in)
			}
			life := ttl * 6 / 10
			if in := renewalTime(now, ttl, life).sub(now); in > life/3 || in <= 0 {
				t.Fatalf("TTL %v: a grant that lives for %v is renewed in %v", ttl, life, in)
			}
		}
		if len(times) < 16 || len(times) > 18 {
			t.Errorf("TTL %v: renewals at %d times in an interval", ttl, len(times))
		}
	}
	for life, want := range map[time.Duration]time.Duration{2 * time.Second: 100 * time.Millisecond, 90 * time.Millisecond: 30 * time.Millisecond} {
		if in := renewalTime(1, 30*time.Second, life).sub(1); in != want {
			t.Errorf("a grant that lives for %v is renewed in %v, want %v", life, in, want)
		}
	}
}
