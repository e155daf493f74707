package ops

import (
	"runtime"
	"runtime/debug"

	"github.com/megaframework/mega/internal/metrics"
)

// Build describes the executable: its versions, revision and Go version.
type Build struct {
	Program  string `json:"program"`
	Module   string `json:"module,omitempty"`
	Version  string `json:"version,omitempty"`
	Mega     string `json:"mega,omitempty"` // the version of the framework
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	System   string `json:"system"`
}

const megaModule = "github.com/megaframework/mega"

// NewBuild reads the build information that the linker wrote into the
// executable, which may be absent.
func NewBuild(program string) Build {
	b := Build{Program: program, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Module, b.Version = info.Main.Path, info.Main.Version
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == megaModule {
			b.Mega = m.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Metrics returns the labels of the build in the metrics.
func (b Build) Metrics() metrics.Build {
	return metrics.Build{Program: b.Program, Version: b.Version, Revision: b.Revision, Go: b.Go}
}
