//go:build !linux && !darwin

package shell

import (
	"context"
	"time"
)

// unsupported is the error of every verb: this system has no process groups
// whose end a holder could enforce.
func unsupported() error {
	return &Error{Code: "cli.failed", Exit: ExitUsage, Text: "Locks for commands are not supported on this system. They need Linux or macOS."}
}

func runExec(Process, Order, []string) error { return unsupported() }

// Exec is not supported on this system.
func Exec(context.Context, Process, Order, []string, Stdio) error { return unsupported() }

// Command is not supported on this system.
func Command(context.Context, Process, []string, Stdio, time.Duration) error { return unsupported() }

func runAcquire(Process, acquireOrder) error { return unsupported() }

func ask(string, request) error { return unsupported() }

func exists(int) bool { return true }

func startHub(context.Context, Process, string) error { return unsupported() }

func hidden(name string) Verb {
	return Verb{Name: name, Hidden: true, Run: func(Process, []string, int) error { return unsupported() }}
}

func holderVerb() Verb { return hidden("holder") }

func keeperVerb() Verb { return hidden("lease") }

func hubVerb() Verb { return hidden("hub") }
