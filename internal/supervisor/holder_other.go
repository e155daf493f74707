//go:build !linux

package supervisor

// HolderOf cannot be answered on this system.
func HolderOf(int) (Holder, bool) { return Holder{}, false }
