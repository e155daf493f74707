package app

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/ctx/locale"
)

func TestCatalogsAgree(t *testing.T) {
	if err := mega.CheckLocales(locales); err != nil {
		t.Fatal(err)
	}
}

// The keys that are written out: of texts in views, in Go and of errors.
var written = regexp.MustCompile(`\bt "([a-z_.]+)"|\bT\("([a-z_.]+)"[,)]|"(problem\.[a-z_]+)"`)

// The fields of requests: the page of errors names those that are wrong.
var (
	inputs = regexp.MustCompile(`(?s)type \w+Input struct \{.*?\n\}`)
	fields = regexp.MustCompile(`json:"([a-z_]+)"`)
)

// A key that is only written in the program would be shown to a visitor.
func TestEveryKeyHasATextInBothLanguages(t *testing.T) {
	texts, err := locale.Parse(nil, locales)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = fs.WalkDir(os.DirFS("."), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".html") && !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		var keys []string
		for _, match := range written.FindAllStringSubmatch(string(text), -1) {
			keys = append(keys, match[1]+match[2]+match[3])
		}
		for _, input := range inputs.FindAllString(string(text), -1) {
			for _, match := range fields.FindAllStringSubmatch(input, -1) {
				keys = append(keys, "field."+match[1])
			}
		}
		for _, key := range keys {
			found++
			for _, name := range texts.Names() {
				if _, err := texts.Text(name, key, nil); err != nil && strings.Contains(err.Error(), "unknown key") {
					t.Errorf("%s: %s has no text for %s", file, name, key)
				}
			}
		}
		return err
	})
	if err != nil || found < 10 {
		t.Errorf("%d keys, %v", found, err)
	}
}
