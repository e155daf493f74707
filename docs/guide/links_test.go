package guide_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`") // has no links
)

// What a page refers to is there: the file, and the heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "../*.md", "../../*.md", "../adr/*.md", "../../sample/*/README.md", "../../bench/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if heading != "" && !strings.Contains(anchors(read(t, target)), "#"+heading+"\n") {
				t.Errorf("%s links to %s, which has no such heading", page, m[1])
			}
		}
	}
}

// The list of the decisions has a row with the number and the title of each page.
func TestListOfDecisionsIsComplete(t *testing.T) {
	pages, err := filepath.Glob("../adr/0*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%q, %v", pages, err)
	}
	list := read(t, "../adr/README.md")
	for _, page := range pages {
		heading, _, _ := strings.Cut(strings.TrimPrefix(read(t, page), "# "), "\n")
		number, title, _ := strings.Cut(heading, ". ")
		if row := "| [" + number + "](" + filepath.Base(page) + ") | " + title; !strings.Contains(list, row) {
			t.Errorf("docs/adr/README.md has no row for %s: %s", page, row)
		}
	}
}

// anchors are the headings of a page as links have them, a line each.
func anchors(page string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		b.WriteString("#" + strings.ReplaceAll(name, " ", "-") + "\n")
	}
	return b.String()
}
