package settings

import "testing"

// A file system of the network may take long to answer.
func TestRecordingDoesNotReadUnderItsMutex(t *testing.T) {
	f := new(Files)
	had := func(s *seen) bool { return s.Read != nil }
	got := f.look("a", had, func() func(*seen) {
		f.look("b", had, func() func(*seen) { return func(s *seen) { s.Read = outcome(nil) } })
		return func(s *seen) { s.Read, s.Data = outcome(nil), []byte("x") }
	})
	if string(got.Data) != "x" || len(f.kept.Paths) != 2 {
		t.Errorf("recorded %+v", f.kept.Paths)
	}
}

func TestRecordKeepsTheFirstOfTwoReads(t *testing.T) {
	f := new(Files)
	had := func(s *seen) bool { return s.Read != nil }
	read := func(text string, beside func()) func() func(*seen) {
		return func() func(*seen) {
			beside()
			return func(s *seen) { s.Read, s.Data = outcome(nil), []byte(text) }
		}
	}
	got := f.look("a", had, read("late", func() { f.look("a", had, read("first", func() {})) }))
	if string(got.Data) != "first" {
		t.Errorf("got %q", got.Data)
	}
	if f.look("b", had, read("late", f.Keep)); len(f.kept.Paths) != 1 {
		t.Error("a kept copy changed")
	}
}
