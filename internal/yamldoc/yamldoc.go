// Package yamldoc reads files that contain one YAML document.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// SecondError is the error of a file with several documents.
type SecondError struct {
	Line int // of the second document; one more than the file has if it begins at the end
}

// Error returns the text with the line.
func (e *SecondError) Error() string {
	return fmt.Sprintf("line %d: the file has a second document", e.Line)
}

// Read returns the document of a file, or nil if the file has none. A document
// without content, as behind a "---" at the end of a file, does not count. The error
// is a *SecondError, or an error of the parser.
func Read(data []byte) (*yaml.Node, error) {
	var only *yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		doc := new(yaml.Node)
		switch err := d.Decode(doc); {
		case errors.Is(err, io.EOF):
			return only, nil
		case err != nil:
			return nil, err
		case isEmpty(doc):
		case only != nil:
			return nil, &SecondError{doc.Line}
		default:
			only = doc
		}
	}
}

// isEmpty reports whether nothing is written in a document, not even a null.
func isEmpty(doc *yaml.Node) bool {
	root := doc.Content[0]
	return root.Kind == yaml.ScalarNode && root.Tag == "!!null" && root.Value == "" && root.Anchor == ""
}
