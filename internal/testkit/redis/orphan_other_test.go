//go:build !linux

package redistest_test

// runParent is for systems that end children with their parent.
func runParent() {}
