package handlers

import (
	"fmt"
	"strings"

	"github.com/megaframework/mega"
)

// DriverInfo is the driver of a page, in its JSON and in its first card.
type DriverInfo struct {
	Driver   string   `json:"driver"`
	Scope    string   `json:"scope"`
	Reason   string   `json:"reason"` // of its choice, as in the boot report
	Warnings []string `json:"warnings,omitempty"`
	Why      string   `json:"-"` // the reason in the language of the reader, or ""
}

func driverInfo(ctx *mega.Ctx, name string, scope fmt.Stringer, reason string, warnings []string) DriverInfo {
	d := DriverInfo{Driver: name, Scope: scope.String(), Reason: reason, Warnings: warnings}
	if key := whyKey(reason); key != "" {
		d.Why = ctx.T("demo.why." + key)
	}
	return d
}

// whyKey returns the text of a reason. The boot report is for operators, in English;
// a reason without a text is shown as it is there.
func whyKey(reason string) string {
	text, _, _ := strings.Cut(reason, "  (") // the key, and where it was set
	switch text {
	case "neither a cache nor a cluster is configured":
		return "no_cache"
	case "neither a NATS server nor a cluster is configured":
		return "no_nats"
	case "a cache is configured":
		return "cache"
	case "a NATS server is configured":
		return "nats"
	case "this process is a worker":
		return "worker"
	case "a socket of this node is configured":
		return "socket"
	case "the locks use it":
		return "locks"
	}
	return ""
}
