package lock

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
)

// callers are the caller of this package and the caller's caller.
type callers [2]uintptr

// callSite is the program counter of the user's call. It becomes text only in
// an event.
type callSite uintptr

// locate notes the callers of the exported function that calls it, for the
// events of its lease. It does nothing without an observer, which alone would see
// them: to walk the stack takes a fifth of the time of a lease in memory.
func (l *Locker) locate(c *call) {
	if l.observed() {
		runtime.Callers(3, c.from[:])
	}
}

// site returns the call site: for a call that was forwarded, one frame further.
func (c *callers) site(forwarded bool) callSite {
	if forwarded {
		return callSite(c[1])
	}
	return callSite(c[0])
}

// String returns "file:line".
func (s callSite) String() string {
	if s == 0 {
		return "unknown"
	}
	frame, _ := runtime.CallersFrames([]uintptr{uintptr(s)}).Next()
	return fmt.Sprintf("%s:%d", frame.File, frame.Line)
}

// thisPackage is the prefix of the names of this package's functions.
var thisPackage = reflect.TypeFor[Locker]().PkgPath() + "."

// siteOfWait returns the call site of the call that is about to wait on this
// goroutine, also without an observer: the first caller outside of this package,
// or for a call that was forwarded the next one.
func siteOfWait(forwarded bool) string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		switch {
		case strings.HasPrefix(frame.Function, thisPackage):
		case forwarded:
			forwarded = false
		default:
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}
