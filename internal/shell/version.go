package shell

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/megaframework/mega/internal/plain"
)

// framework is the path of the framework's module.
const framework = "github.com/megaframework/mega"

// Build describes a program and its sources. It is the document of version --json.
type Build struct {
	Program  string `json:"program"`
	Module   string `json:"module"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from uncommitted sources
	Mega     string `json:"mega"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildOf returns the build of this program, which has the name program.
func BuildOf(program string) Build {
	b := Build{Program: program, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Version: "unknown", Mega: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Module, b.Version = info.Main.Path, cmp.Or(info.Main.Version, "(devel)")
	if b.Module == framework {
		b.Mega = b.Version
	}
	for _, m := range info.Deps {
		if m.Path == framework {
			b.Mega = m.Version
			if m.Replace != nil {
				b.Mega = cmp.Or(m.Replace.Version, "(devel)") + " from " + m.Replace.Path
			}
		}
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// Print writes the build for people.
func (b Build) Print(w io.Writer) {
	line := b.Version
	if b.Revision != "" {
		line += " (" + b.Revision[:min(len(b.Revision), 12)]
		if b.Modified {
			line += ", with changes"
		}
		line += ")"
	}
	t := plain.Table{}
	t.Add(b.Program, line)
	if b.Module != framework {
		t.Add("mega", b.Mega)
	}
	t.Add("go", b.Go+" "+b.Platform)
	t.Print(w)
}

func versionVerb() Verb {
	return Verb{
		Name: "version", Short: VersionShort,
		Long: "With --json: {\"program\", \"module\", \"version\", \"revision\", \"modified\", \"mega\", \"go\", \"platform\"}.",
		Run: func(p Process, args []string, _ int) error {
			if len(args) > 0 {
				return usage("cli.extra_argument", fmt.Sprintf("version does not take %q.", args[0]))
			}
			build := BuildOf(p.Name)
			if p.JSON {
				return printJSON(p, build)
			}
			var b strings.Builder
			build.Print(&b)
			return p.write(b.String())
		},
	}
}

// VersionShort describes the verb version and the flag --version.
const VersionShort = "show the version and the sources of this program"
