//go:build !linux

package workers

// HolderOf returns false: this system does not list the sockets of processes.
func HolderOf(string) (Holder, bool) { return Holder{}, false }
