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
