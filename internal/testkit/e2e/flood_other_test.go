//go:build !linux && !darwin

package e2e_test

// limitDescriptors is for systems with a limit of descriptors per process.
func limitDescriptors() {}
