package goroutine

import (
	"sync"
	"testing"
)

func TestRunningGoroutinesHaveDifferentNumbers(t *testing.T) {
	for name, id := range map[string]func() uintptr{"ID": ID, "parsed": parsed} {
		t.Run(name, func(t *testing.T) {
			const n = 100
			var (
				running, ended sync.WaitGroup
				release        = make(chan struct{})
				first, again   [n]uintptr
			)
			running.Add(n)
			for i := range n {
				ended.Go(func() {
					first[i] = id()
					running.Done()
					<-release
					grow(1000) // the stack moves
					again[i] = id()
				})
			}
			running.Wait()
			close(release)
			ended.Wait()
			seen := map[uintptr]bool{0: true, id(): true}
			for i := range n {
				if seen[first[i]] || again[i] != first[i] {
					t.Errorf("goroutine %d had the number %d, then %d", i, first[i], again[i])
				}
				seen[first[i]] = true
			}
		})
	}
}

func grow(depth int) int {
	var room [128]int
	if depth > 0 {
		room[depth%len(room)] = grow(depth - 1)
	}
	return room[0] + 1
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		ID()
	}
}
