package settings_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/settings"
)

// compiled is the schema of the program that source describes, or a part of
// it, held to be one of draft 2020-12.
func compiled(t *testing.T, part string) *jsonschema.Schema {
	t.Helper()
	text, err := settings.JSONSchema(source(""))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mega.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("mega.json" + part)
	if err != nil {
		t.Fatal(err)
	}
	if schema.DraftVersion != 2020 {
		t.Fatalf("the schema is of draft %d", schema.DraftVersion)
	}
	return schema
}

// instance is a file as JSON has it.
func instance(name, text string) (any, error) {
	var v any
	var err error
	switch filepath.Ext(name) {
	case ".yaml":
		err = yaml.Unmarshal([]byte(text), &v)
	case ".toml":
		err = toml.Unmarshal([]byte(text), &v)
	default:
		return jsonschema.UnmarshalJSON(strings.NewReader(text))
	}
	if err != nil {
		return nil, err
	}
	if v == nil {
		v = map[string]any{} // nothing but comments
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("as JSON: %w", err)
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}

func TestSchemaAndLoadAcceptTheSameFiles(t *testing.T) {
	schema, web := compiled(t, ""), compiled(t, "#/$defs/app.web")
	files := map[string]string{
		yamlFile + " everything": "name: x\nlock: {driver: auto, ttl: 1m30s, wait: 0, require: ''}\nnats: {url: 'nats://a,b', token: t, tls: {ca: /ca}}\nbus: {nats: {event_prefix: ''}}\n" +
			"apps: {admin: {host: '*.example.org', prefix: /a/b, body_limit: 1.5MiB, trusted_origins: ['https://x.org:8443']}}\ndatabase: {url: '', pool: 64}\nlimits: {rate: 1e3, big: -5, hosts: []}\n",
		yamlFile + " an app's own section": "apps: {web: {database: {password: p, retry: 1ms}}}\n",
		yamlFile + " whole numbers":        "limits: {big: 1.0, small: 2e2}\n",
		jsonFile:                           `{"limits": {"big": 9223372036854775807.0, "small": 2.0e1}, "cluster": {"workers": 40e-1}}`,
		yamlFile + " nothing":              "# nothing\n",
		yamlFile + " less":                 "---\n# nothing\n",
		yamlFile + " an empty document":    "name: x\n---\n# end\n",
	}
	maps.Copy(files, sample)
	for name, text := range files {
		name, _, _ := strings.Cut(name, " ")
		if _, err := settings.Load(source(folder(t, map[string]string{name: text}))); err != nil {
			t.Errorf("%s is refused by Load: %v", text, err)
		}
		v, err := instance(name, text)
		if err == nil {
			err = schema.Validate(v)
		}
		if err != nil {
			t.Errorf("%s is refused by the schema: %v", text, err)
		}
	}
	for text, legal := range map[string]bool{"addr: ':1'\n$schema: x\n": true, "database: {pool: 3}\n": true, "ops: {addr: ':1'}\n": false, "database: {}\n": false} {
		v, err := instance(yamlFile, text)
		if err != nil {
			t.Fatal(err)
		}
		_, refused := settings.Load(source(folder(t, map[string]string{"apps/web/app.config.yaml": text})))
		if err := web.Validate(v); (err == nil) != legal || (refused == nil) != legal {
			t.Errorf("of an app, %s: the schema says %v, Load says %v", text, err, refused)
		}
	}
}

// unseen are mistakes that no schema can see: bounds of what is text to it,
// and how a number was written before the parser made one of it.
var unseen = []string{
	"is less than 1B", "whole number of bytes", "below 8EiB", `"012" begins with 0`, `"0x1F" is not`, "is a date", `"2024-01-01" is a date`,
	`write "2024-01-01"`, `write "07:30:00"`,
}

func TestSchemaAndLoadRefuseTheSameFiles(t *testing.T) {
	schema, tried := compiled(t, ""), 0
	for _, m := range mistakes {
		if m.code == "config.syntax" || m.code == "config.file" || m.code == "config.duplicate_key" {
			continue // it is no JSON value at all
		}
		blind := false
		for _, says := range unseen {
			blind = blind || strings.Contains(m.says, says)
		}
		if blind {
			continue
		}
		v, err := instance(m.file, m.text)
		if err != nil {
			if strings.Contains(err.Error(), "unsupported value") {
				continue // infinity
			}
			t.Fatalf("%s: %v", m.text, err)
		}
		tried++
		if schema.Validate(v) == nil {
			t.Errorf("the schema takes %q, although %s", m.text, m.says)
		}
	}
	if tried < 40 {
		t.Errorf("only %d mistakes were shown to the schema", tried)
	}
}

func TestASchemaOfAnImpossibleSectionIsRefused(t *testing.T) {
	s := settings.Source{Sections: []settings.Section{{Name: "lock", Site: "a.go:1"}}}
	if _, err := settings.JSONSchema(s); err == nil || !strings.Contains(err.Error(), "a.go:1") {
		t.Errorf("got %v", err)
	}
}

func TestSchemaOfASectionIsThatOfItsTags(t *testing.T) {
	type remote struct {
		URL   config.URL `key:"url" schemes:"git+ssh|https"`
		Quiet bool       `key:"quiet" default:"TRUE"`
	}
	s := settings.Source{Sections: []settings.Section{{Name: "remote", Type: reflect.TypeFor[remote]()}}}
	text, err := settings.JSONSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Properties struct {
			Remote struct {
				Properties struct {
					URL   struct{ Pattern string }
					Quiet struct{ Default bool }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	described := file.Properties.Remote.Properties
	if !described.Quiet.Default {
		t.Error("the default of the schema is false, and TRUE of Load")
	}
	for url, legal := range map[string]bool{"git+ssh://h": true, "https://h": true, "gitssh://h": false, "gittssh://h": false} {
		s.Environ = []string{"MEGA_REMOTE_URL=" + url}
		_, err := settings.Load(s)
		if matches := regexp.MustCompile(described.URL.Pattern).MatchString(url); matches != legal || (err == nil) != legal {
			t.Errorf("%s: the schema says %t, Load says %v", url, matches, err)
		}
	}
}

func TestPatternsOfTheSchemaAreOfECMA262(t *testing.T) {
	type odd struct {
		Case  string   `key:"case" pattern:"(?i)^k[a-c]$"`
		Named string   `key:"named" pattern:"^(?P<first>x+?)(y|z){2,3}\\z"`
		Class string   `key:"class" pattern:"^[[:alpha:]_-]*[^\\x00-\\x1f\\]]\\Q.+\\E$"`
		Dot   string   `key:"dot" pattern:"\\A.+(?s:.)$"`
		Lines string   `key:"lines" pattern:"(?m)^a$"`
		None  string   `key:"none" pattern:"[^\\s\\S]"`
		Word  string   `key:"word" pattern:"\\b[\\s\\S]{3}(?:x\\B|yz)$"`
		Items []string `key:"items" pattern:"^(?U)a{2,}|b?c*$"`
	}
	s := settings.Source{Sections: []settings.Section{{Name: "odd", Type: reflect.TypeFor[odd]()}}}
	text, err := settings.JSONSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Properties struct {
			Odd struct {
				Properties struct {
					Case, Named, Class, Dot, Lines, None, Word struct{ Pattern string }
					Items                                      struct{ Items struct{ Pattern string } }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	got := file.Properties.Odd.Properties
	for _, x := range [][2]string{
		{got.Case.Pattern, `^$|^[kKK][A-Ca-c]$`},
		{got.Named.Pattern, `^$|^(?:x+)(?:[yz]){2,3}$`},
		{got.Class.Pattern, `^$|^[\-A-Z_a-z]*[^\x00-\x1f\]]\.\+$`},
		{got.Dot.Pattern, `^$|^[^\n]+[\s\S]$`},
		{got.Lines.Pattern, `^$|(?:^|(?<=\n))a(?:$|(?=\n))`},
		{got.None.Pattern, `^$|[^\s\S]`},
		{got.Word.Pattern, `^$|\b[\s\S]{3}(?:x\B|yz)$`},
		{got.Items.Items.Pattern, `^a{2,}|b?c*$`},
	} {
		if x[0] != x[1] {
			t.Errorf("got %s, want %s", x[0], x[1])
		}
	}
}
