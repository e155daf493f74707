package locale

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/megaframework/mega/internal/yamldoc"
)

// decodeYAML is yaml.Unmarshal with an error for a second document, which
// yaml.Unmarshal ignores.
func decodeYAML(data []byte, v any) error {
	doc, err := yamldoc.Read(data)
	if err != nil || doc == nil {
		return err
	}
	return doc.Decode(v)
}

// decodeJSON is json.Unmarshal with an error for each key that exists twice, of
// which that takes the last.
func decodeJSON(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	k := keys{dec: json.NewDecoder(bytes.NewReader(data)), data: data}
	k.value("")
	return errors.Join(k.twice...)
}

// keys finds the keys that exist twice in valid JSON.
type keys struct {
	dec   *json.Decoder
	data  []byte
	twice []error
}

// value reads one value at a path, which ends in a dot or is empty.
func (k *keys) value(path string) {
	token, _ := k.dec.Token() // the text is valid
	isObject := token == json.Delim('{')
	if !isObject && token != json.Delim('[') {
		return
	}
	seen := map[any]bool{}
	for k.dec.More() {
		inside := path
		if isObject {
			key, _ := k.dec.Token()
			inside = fmt.Sprint(path, key)
			if seen[key] {
				line := 1 + bytes.Count(k.data[:k.dec.InputOffset()], []byte("\n"))
				k.twice = append(k.twice, fmt.Errorf("line %d: %s exists twice", line, inside))
			}
			seen[key] = true
			inside += "."
		}
		k.value(inside)
	}
	_, _ = k.dec.Token() // the end of the object or list
}
