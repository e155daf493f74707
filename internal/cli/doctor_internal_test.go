package cli

import (
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/doctor"
)

// The texts of an app have all their mistakes in one error, a line for each.
func TestAFindingOfSeveralLinesIsPrintedInLines(t *testing.T) {
	var out strings.Builder
	printFindings(&out, []doctor.Finding{{Name: "program", Verdict: doctor.Fail, Text: "parse texts: de.yaml: a\nen.yaml: b\x1b", Action: "explain boot.locales"}})
	want := "fail  program  parse texts: de.yaml: a\n               en.yaml: b\\u001b\n               -> explain boot.locales\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
