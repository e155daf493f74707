package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
)

// Reference returns the keys of s as Markdown: a table for each section, in
// the order of their declaration.
func Reference(s Source) (string, error) {
	sc, problems := newSchema(s)
	if len(problems) > 0 {
		return "", problems
	}
	var b strings.Builder
	section := ""
	for _, f := range sc.listed() {
		if head := f.Path[0]; head != section && len(f.Path) > 1 {
			section = head
			fmt.Fprintf(&b, "\n### %s\n%s\n| key | takes | default | |\n|---|---|---|---|\n", section, sc.ownNote(section))
		} else if section == "" {
			section = "-"
			b.WriteString("\n| key | takes | default | |\n|---|---|---|---|\n")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Key(), cell(f.legal()), cell(f.preset()), cell(f.remarks()))
	}
	return b.String(), nil
}

// listed returns the keys for a reference: the keys of apps and of caches once,
// with a placeholder for the name.
func (sc *schema) listed() (all []field) {
	apps := false
	for _, f := range sc.fields {
		f.Path = slices.Clone(f.Path)
		switch {
		case f.Path[0] != "apps":
			if i := slices.Index(f.Path, "*"); i >= 0 {
				f.Path[i] = "<alias>"
			}
			all = append(all, f)
		case !apps:
			apps = true
			all = append(all, listedApps()...)
		}
	}
	if !apps { // the program may have no app
		at := slices.IndexFunc(all, func(f field) bool { return f.Path[0] == "ops" })
		all = slices.Insert(all, at, listedApps()...)
	}
	return all
}

func listedApps() (all []field) {
	for _, f := range appFields() {
		f.Path = append([]string{"apps", "<name>"}, f.Path...)
		all = append(all, f)
	}
	return all
}

// ownNote returns a note on the other places where the keys of a section may be
// set.
func (sc *schema) ownNote(section string) string {
	var apps []string
	for _, s := range sc.sections {
		if s.Name == section && s.App != "" {
			apps = append(apps, "`apps."+s.App+"."+section+"`")
		}
	}
	if len(apps) == 0 {
		return ""
	}
	return "\nFor one app alone: " + strings.Join(apps, ", ") + ".\n"
}

// legal returns the legal values of a key, for a table.
func (f field) legal() string {
	parts := []string{f.takes()}
	switch {
	case f.Enum != nil:
		parts = f.Enum
	case f.Schemes != nil:
		parts = []string{"a URL: " + strings.Join(f.Schemes, "://, ") + "://"}
	case f.Like != "":
		parts = append(parts, "like "+f.Like)
	}
	if bounds := f.bounds(); bounds != "" {
		parts = append(parts, bounds)
	}
	return strings.Join(parts, ", ")
}

// bounds returns min and max as a phrase.
func (f field) bounds() string {
	switch {
	case f.Min != "" && f.Max != "":
		return f.Min + " to " + f.Max
	case f.Min != "":
		return "at least " + f.Min
	case f.Max != "":
		return "at most " + f.Max
	}
	return ""
}

func (f field) preset() string {
	switch {
	case f.Default != "":
		return "`" + f.Default + "`"
	case f.Inherits != "":
		return "the value of `" + f.Inherits + "`"
	}
	return ""
}

func (f field) remarks() string {
	var remarks []string
	if f.Doc != "" {
		remarks = append(remarks, f.Doc)
	}
	if f.Required && f.Default == "" {
		remarks = append(remarks, "**required**")
	}
	if f.Type == reflect.TypeFor[config.Secret]() {
		remarks = append(remarks, "**secret**")
	}
	if f.Live {
		remarks = append(remarks, "**live**")
	}
	return strings.Join(remarks, "; ")
}

// cell escapes a text for a table cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
}
