package cli_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/failure"
)

// shop is the program whose command line is tested in this process.
func shop(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = cli.Run(cli.Process{Args: append([]string{"/usr/bin/shop"}, args...), Stdout: &out, Stderr: &err},
		mega.App("web", mega.Routes(func(megactx.Router) {})))
	return status, out.String(), err.String()
}

func TestWrongCommandLineSuggestsACorrection(t *testing.T) {
	for _, x := range []struct{ line, code, says string }{
		{"server", "cli.unknown_verb", "did you mean: shop serve"},
		{"vesrion", "cli.unknown_verb", "did you mean: shop version"},
		{"help vesrion", "cli.unknown_verb", "did you mean: shop version"},
		{"vesrion --help", "cli.unknown_verb", "did you mean: shop version"},
		{"lock --help shwo", "cli.unknown_verb", "did you mean: shop lock show"},
		{"buy", "cli.unknown_verb", `Unknown verb "buy"`},
		{"bus publish", "cli.unknown_verb", "its verbs are pub, req, tail, topics"},
		{"help serve now", "cli.unknown_verb", "Unknown verb \"now\".  (cli.unknown_verb)\n  • show the help: shop serve --help"},
		{"serve now", "cli.extra_argument", `does not take "now"`},
		{"config check redis://u:secret@h", "cli.extra_argument", `does not take "redis://***@h"`},
		{"redis://u:secret@h", "cli.unknown_verb", `Unknown verb "redis://***@h"`},
		{"lock exec k ping redis://u:secret@h", "cli.missing_argument", "shop lock exec k -- ping redis://***@h"},
		{"serve --workers redis://u:secret@h", "cli.wrong_flag", `"redis://***@h" for "--workers" flag`},
		{"serve --olny web", "cli.unknown_flag", "did you mean: --only"},
		{"--confgi x serve", "cli.unknown_flag", "did you mean: --config"},
		{"--only web version", "cli.unknown_flag", "shop version has no flag --only"},
		{"serve -x", "cli.wrong_flag", "'x' in -x"},
		{"serve --config", "cli.wrong_flag", "needs an argument: --config"},
		{"--json=maybe version", "cli.wrong_flag", "maybe"},
		{"serve --config=", "cli.wrong_flag", "it is empty"},
		{"serve --only=", "cli.wrong_flag", "it is empty"},
		{"lock ls --socket=", "cli.wrong_flag", "it is empty"},
		{"lock ls --limit x", "cli.wrong_flag", `"x" for "--limit" flag: must be a number from 1 to 1000`},
		{"lock release k --reason x --fence abc", "cli.wrong_flag", `"abc" for "--fence" flag: it must be a whole number from 0 on`},
		{"lock exec k --worker 1 -- true", "cli.wrong_flag", "shop lock exec has no use for --worker"},
		{"lock exec k --set lock.driver=memory -- true", "cli.wrong_flag", "shop lock exec has no use for --set"},
		{"--config . lock acquire k --max 1s", "cli.wrong_flag", "shop lock acquire has no use for --config"},
		{"limit exec k --rate 1/1s --worker 1 -- true", "cli.wrong_flag", "to use a Redis: lock exec, lock acquire and limit exec have --url-env VAR"},
		{"bus tail sold -n 0", "cli.wrong_flag", `"0" for "-n, --count" flag: must be a number from 1 on`},
		{"limit pause k --for soon", "cli.wrong_flag", "it must be a time such as"},
		{"serve --workers 0", "cli.wrong_flag", `"0" for "--workers" flag: must be a number from 1 to 256`},
		{"serve --workers -1", "cli.wrong_flag", "from 1 to 256"},
		{"--workers 257", "cli.wrong_flag", "from 1 to 256"},
		{"serve --workers abc", "cli.wrong_flag", "must be a number from 1 to 256"},
		{"lock ls --worker 0", "cli.wrong_flag", "must be a number from 1 on"},
		{"bus topics --worker x", "cli.wrong_flag", "must be a number from 1 on"},
		{"bus pub a --pid 0", "cli.wrong_flag", "must be a number from 1 on"},
		{"worker restart --pid -1", "cli.wrong_flag", "must be a number from 1 on"},
		{"lock release lease-aaaa --fence 3", "cli.no_reason", "A forced release needs a reason"},
		{"lock release lease-aaaa --slot 3", "cli.no_reason", "A forced release needs a reason"},
		{"explain lock.lots", "cli.unknown_code", "did you mean: shop explain lock.lost"},
		{"explain LOCK.LOTS", "cli.unknown_code", "did you mean: shop explain lock.lost"},
		{"explain lock.lost now", "cli.extra_argument", `"now"`},
		{"completion", "cli.missing_argument", "bash, zsh, fish, powershell"},
		{"completion tcsh", "cli.unknown_shell", "bash, zsh, fish, powershell"},
		{"completion fsih", "cli.unknown_shell", "did you mean: shop completion fish"},
	} {
		args := strings.Fields(x.line)
		status, stdout, stderr := shop(t, args...)
		if status != failure.ExitUsage || stdout != "" || !strings.Contains(stderr, "("+x.code+")") || !strings.Contains(stderr, x.says) {
			t.Errorf("%s: exit status %d, want %s that says %q:\n%s%s", x.line, status, x.code, x.says, stdout, stderr)
		}
		if c, err := failure.Explain(x.code); err != nil || c.Exit != failure.ExitUsage {
			t.Errorf("%s is explained by %+v, %v", x.code, c, err)
		}
	}
}

func TestToolNamesThePlaceOfTheVerbsOfAnApplication(t *testing.T) {
	var out bytes.Buffer
	status := cli.RunTool(cli.Process{Args: []string{"mega", "doctor"}, Stdout: &out, Stderr: &out}, cli.Tool{})
	if want := "for a verb of an application, use its own binary: go run . help"; status != failure.ExitUsage || !strings.Contains(out.String(), want) {
		t.Errorf("exit status %d, want %q:\n%s", status, want, out.String())
	}
}

// A wrong command line with --json is reported as JSON.
func TestFailureIsJSONWhereThatIsAskedFor(t *testing.T) {
	for _, line := range []string{"buy --json", "--json buy", "--josn --json", "serve --olny web --json", "explain --json lock.lots"} {
		status, stdout, stderr := shop(t, strings.Fields(line)...)
		var f struct {
			Code    string
			Exit    int
			Text    string
			Actions []string
		}
		err := json.Unmarshal([]byte(stderr), &f)
		if err != nil || status != failure.ExitUsage || f.Exit != status || f.Text == "" || len(f.Actions) == 0 || stdout != "" {
			t.Errorf("%s: exit status %d, %v: %s%s", line, status, err, stdout, stderr)
		}
	}
	if _, _, stderr := shop(t, "buy", "--", "--json"); strings.HasPrefix(stderr, "{") {
		t.Errorf("an argument was taken for a flag: %s", stderr)
	}
}

func TestProgramWithoutAnAppIsRefused(t *testing.T) {
	for _, args := range [][]string{{"shop", "serve"}, {"shop"}, nil} {
		var stderr bytes.Buffer
		status := cli.Run(cli.Process{Args: args, Stderr: &stderr})
		if status != failure.ExitInternal || !strings.Contains(stderr.String(), "has no app") {
			t.Errorf("%q: exit status %d: %s", args, status, &stderr)
		}
	}
}
