package bus

import (
	"bytes"
	"sync"
	"testing"

	"github.com/megaframework/mega/bus/driver"
)

func TestNoTwoDeliveriesShareMemory(t *testing.T) {
	const goroutines, each = 4, 25
	a, data := newAllotment([]byte("x"))
	m := driver.Message{Local: a, Data: data}
	var (
		all  [goroutines][each]*delivery
		done sync.WaitGroup
	)
	for i := range all {
		done.Go(func() {
			for j := range each {
				all[i][j] = allot(&m)
			}
		})
	}
	done.Wait()
	seen := map[*delivery]bool{}
	for _, some := range all {
		for _, d := range some {
			if d == nil || seen[d] {
				t.Fatalf("delivery %p was given out twice", d)
			}
			seen[d] = true
		}
	}
}

// Another goroutine may have taken a number, and have yet to store its share.
func TestADeliveryIsNotOfTheShareBefore(t *testing.T) {
	a, data := newAllotment(nil)
	m := driver.Message{Local: a, Data: data}
	seen := map[*delivery]bool{}
	for range 1 + shareSize {
		seen[allot(&m)] = true
	}
	a.taken.Add(1)
	for range shareSize - 1 {
		d := allot(&m)
		if seen[d] {
			t.Errorf("delivery %p was given out twice", d)
		}
		seen[d] = true
	}
}

func TestAnAllotmentCopiesTheData(t *testing.T) {
	for _, n := range []int{0, 1, 64, 65, 128, 129, 256, 257, 4096} {
		data := bytes.Repeat([]byte("x"), n)
		_, own := newAllotment(data)
		clear(data)
		if own == nil || len(own) != n || cap(own) != n || bytes.Count(own, []byte("x")) != n {
			t.Errorf("%d bytes were copied to %d of %d bytes: %q", n, len(own), cap(own), own)
		}
	}
}
