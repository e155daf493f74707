// Package e2e holds the end-to-end tests: programs made with package mega, run
// as processes of their own, with signals, workers and load. The tests'
// executable is each of these programs; children_test.go lists them.
package e2e
