package boot

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
)

// current is the configuration in force.
type current struct {
	mu           sync.Mutex                      // held while the configuration is read again
	config       atomic.Pointer[settings.Config] // the plan's Config with the later live changes
	files        *settings.Files                 // the newest copy of its files, with the certificates
	certificates []*listen.Certificates          // of the servers; nil for one without TLS
	ending       context.Context                 // ends with the program, and with it the wait for providers
	end          func()                          // ends ending
}

// settings returns the configuration in force.
func (b *booting) settings() []plan.Setting {
	all := []plan.Setting{}
	for _, v := range b.current.config.Load().Values() {
		all = append(all, plan.NewSetting(v))
	}
	return all
}

// Reload reads the configuration again and applies the changes that a running
// process can apply. Each returned change has a field that reports whether it
// is applied. After an error the configuration is unchanged; the error contains
// the cause.
func (r *Running) Reload() ([]config.Change, error) { return r.b.reload(nil) }

// reload reloads the configuration from a copy of files, or from the disk if
// files is nil.
func (b *booting) reload(files *settings.Files) ([]config.Change, error) {
	b.current.mu.Lock()
	defer b.current.mu.Unlock()
	changes, err := b.readAgain(files)
	if err != nil && b.current.ending.Err() == nil {
		b.log.Error("configuration reload refused", "error", err)
	}
	if report := b.reported.Load(); report != nil { // nil before the end of the boot
		now := *report
		now.Reload = newReloaded(changes, err)
		b.reported.Store(&now)
	}
	return changes, err
}

func newReloaded(changes []config.Change, err error) *plan.Reloaded {
	r := &plan.Reloaded{At: time.Now()}
	if err != nil {
		r.Refused = err.Error()
	}
	for _, c := range changes {
		if c.Live {
			r.Live = append(r.Live, c.Key)
		} else {
			r.Pending = append(r.Pending, c.Key)
		}
	}
	return r
}

func (b *booting) readAgain(files *settings.Files) ([]config.Change, error) {
	s := b.process.source(b.plan.Program, b.current.ending.Done())
	s.Files = files
	next, changes, err := settings.Reload(b.current.config.Load(), s)
	if err != nil {
		return nil, err
	}
	renew, err := b.current.readCertificates(files, changes)
	if err != nil {
		return nil, err
	}
	replaced := renew()
	b.veil.Add(next, b.plan.Program.Sections()) // before a log message can contain its secrets
	b.logs.Apply(next)
	for _, h := range b.apps.hosts {
		if app, ok := next.Apps[h.App.Name]; ok {
			if err := h.SetLimits(plan.Limits(app)); err != nil {
				return nil, err // only origins can be wrong, and they are not live
			}
		}
	}
	b.current.config.Store(next)
	b.logChanges(changes, replaced)
	return changes, nil
}

// readCertificates reads the files of all certificates again, since a file
// changes without its key: from the copy of a supervisor, or from the disk if
// files is nil. The returned function puts them into use, and returns the files of
// those that have changed. Certificates with changed keys stay until a restart.
func (c *current) readCertificates(files *settings.Files, changes []config.Change) (apply func() (replaced []string), err error) {
	var all []func() []string
	for _, used := range c.certificates {
		renew, err := used.Read(files, changes)
		if err != nil {
			return nil, err
		}
		all = append(all, renew)
	}
	return func() (replaced []string) {
		for _, renew := range all {
			replaced = append(replaced, renew()...)
		}
		slices.Sort(replaced)
		return slices.Compact(replaced) // apps may share a certificate
	}, nil
}

func (b *booting) logChanges(changes []config.Change, replaced []string) {
	if len(changes)+len(replaced) == 0 {
		b.log.Info("configuration reloaded without changes")
	}
	for _, file := range replaced {
		b.log.Info("certificate replaced", slog.String("file", file))
	}
	for _, c := range changes {
		text := "configuration changed"
		if !c.Live {
			text = "configuration changed; restart to apply it"
		}
		logChange(b.log, text, c)
	}
}

func logChange(log *slog.Logger, text string, c config.Change) {
	log.Info(text, slog.String("key", c.Key), slog.String("old", c.Old), slog.String("new", c.New), slog.String("origin", c.Origin))
}

// isSupervisors reports whether the supervisor of several workers uses a key: a restart of
// the workers does not apply its new value.
func isSupervisors(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	isAddr := section == "apps" && strings.HasSuffix(key, ".addr") && strings.Count(key, ".") == 2
	return section == "ops" || section == "cluster" || isAddr || key == "log.format"
}
