package guide_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// What a sample's binary says a file may be, each of its files is.
func TestTheSchemaOfEachSampleTakesItsFiles(t *testing.T) {
	mains, err := filepath.Glob("../../sample/*/main.go")
	if err != nil || len(mains) < 2 {
		t.Fatalf("the samples: %q, %v", mains, err)
	}
	checked := 0
	for _, main := range mains {
		folder := filepath.Dir(main)
		run := exec.CommandContext(t.Context(), "go", "run", ".", "config", "schema")
		run.Dir = folder
		schema, err := run.Output()
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		for _, pattern := range []string{"mega.config.*", "apps/*/app.config.*"} {
			files, err := filepath.Glob(filepath.Join(folder, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				checked++
				part := ""
				if strings.HasPrefix(filepath.Base(file), "app.") {
					part = "#/$defs/app." + filepath.Base(filepath.Dir(file))
				}
				s := schemaOf(t, schema, part)
				if err := s.Validate(valueOf(t, file, read(t, file))); err != nil {
					t.Errorf("%s: %v", file, err)
				}
				if s.Validate(map[string]any{"lokc": 1}) == nil {
					t.Errorf("the schema of %s takes anything", file)
				}
			}
		}
	}
	if checked < 3 {
		t.Errorf("only %d files were checked", checked)
	}
}

func schemaOf(t *testing.T, text []byte, part string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mega.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mega.schema.json" + part)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valueOf is a file as a schema sees it.
func valueOf(t *testing.T, name, text string) any {
	t.Helper()
	v := map[string]any{}
	unmarshal := map[string]func([]byte, any) error{".yaml": yaml.Unmarshal, ".toml": func(b []byte, v any) error { return toml.Unmarshal(b, v) }, ".json": json.Unmarshal}[filepath.Ext(name)]
	if err := unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return value
}
