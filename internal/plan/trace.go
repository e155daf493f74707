package plan

import (
	"fmt"

	"github.com/megaframework/mega/internal/failure"
)

// TraceFx is the topic with which the injector logs each of its steps.
const TraceFx = "fx"

// CheckTrace returns the failure of an unknown topic of --trace.
func CheckTrace(topics []string) error {
	for _, topic := range topics {
		if topic != TraceFx {
			return &failure.Failure{
				Code: "boot.unknown_trace", Exit: failure.ExitUsage, Text: fmt.Sprintf("There is nothing called %q to trace.", topic),
				Actions: []string{"Trace the injector: " + TraceFx},
			}
		}
	}
	return nil
}
