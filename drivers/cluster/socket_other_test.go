//go:build !linux && !darwin

package cluster

func runSocketChild() {}
