//go:build !linux && !darwin

package mega_test

// limitDescriptors is for systems with a limit of descriptors per process.
func limitDescriptors() {}
