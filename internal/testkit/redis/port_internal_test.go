package redistest

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// A server that was killed finds its port free, however many servers start
// meanwhile, in this process and in others.
func TestPortOfAKilledServerStaysReserved(t *testing.T) {
	const other = "MEGA_TEST_OTHER_PORT"
	if port, err := strconv.Atoi(os.Getenv(other)); err == nil { // the other process
		if reserve(port) {
			t.Error("another process has the port")
		}
		return
	}
	s := Start(t, Options{})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if reserve(s.port) {
		t.Error("this process gives the port away")
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), other+"="+strconv.Itoa(s.port))
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !reserve(s.port) {
		t.Error("the port of a closed server is not free")
	}
	release(s.port)
}
