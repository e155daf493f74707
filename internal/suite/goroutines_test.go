package suite_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/megaframework/mega/internal/suite"
)

func TestGoroutinesThatHaveEndedAreNotCounted(t *testing.T) {
	const most = 100
	before := suite.Goroutines(0)
	stop := make(chan struct{})
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC() // frees the stacks of the goroutines below
			}
		}
	})
	for range suite.Scaled(200) {
		var work sync.WaitGroup
		for range 2000 {
			work.Go(func() {})
		}
		work.Wait()
		for range 2000 {
			if n := suite.Goroutines(before+most) - before; n > most {
				t.Errorf("%d goroutines, of which one runs", n)
			}
		}
	}
	close(stop)
	collecting.Wait()
}
