package rendezvous

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
)

func TestEarlierSocketsAreFoundByTheirWholePath(t *testing.T) {
	const list = "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01    77 /run/a  b/s~\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 12345 /run/a  b/s~\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 12346\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 12347 /run/a b/s~\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 12348 /run/c/s~ \n"
	for path, want := range map[string][]string{
		"/run/a  b/s~": {"12345", "77"},
		"/run/a b/s~":  {"12347"},
		"/run/c/s~ ":   {"12348"},
		"/run/c/s~":    nil,
		"":             nil,
	} {
		if got := slices.Sorted(maps.Keys(boundAt([]byte(list), path))); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestGoroutinesMayAskAtOnceWhetherAHubLockIsContested(t *testing.T) {
	s := &HubLock{socket: &Socket{path: "/no/such/socket"}, old: map[string]bool{}}
	for i := range 100 {
		s.old[strconv.Itoa(i)] = true
	}
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			if s.Contested() {
				t.Error("sockets that do not exist contest it")
			}
		})
	}
	asking.Wait()
}
