package cli

import (
	"cmp"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/plain"
)

const framework = "github.com/megaframework/mega"

// version is the document of version --json.
type version struct {
	Program  string `json:"program"`
	Module   string `json:"module"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from uncommitted sources
	Mega     string `json:"mega"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionVerb(s *Shell) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "show the version and the sources of this program",
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error { return printVersion(s) },
	}
}

// versionFlag adds --version to a root command. It does the same as the verb.
func versionFlag(s *Shell, root *cobra.Command) {
	asked := root.Flags().Bool("version", false, "show the version and the sources of this program")
	run := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if *asked {
			return printVersion(s)
		}
		return run(c, args)
	}
}

// Version returns the version of this program.
func (s *Shell) Version() string { return versionOf(s.Name).Version }

func printVersion(s *Shell) error {
	v := versionOf(s.Name)
	return s.Print(v, v.print)
}

func versionOf(program string) version {
	v := version{Program: program, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Version: "unknown", Mega: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Module, v.Version = info.Main.Path, cmp.Or(info.Main.Version, "(devel)")
	if v.Module == framework {
		v.Mega = v.Version
	}
	for _, m := range info.Deps {
		if m.Path == framework {
			v.Mega = m.Version
			if m.Replace != nil {
				v.Mega = cmp.Or(m.Replace.Version, "(devel)") + " from " + m.Replace.Path
			}
		}
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Revision = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	return v
}

func (v version) print(w io.Writer) {
	line := v.Version
	if v.Revision != "" {
		line += " (" + v.Revision[:min(len(v.Revision), 12)]
		if v.Modified {
			line += ", with changes"
		}
		line += ")"
	}
	t := plain.Table{}
	t.Add(v.Program, line)
	if v.Module != framework {
		t.Add("mega", v.Mega)
	}
	t.Add("go", v.Go+" "+v.Platform)
	t.Print(w)
}
