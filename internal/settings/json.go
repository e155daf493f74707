package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// readJSON parses the single object of a file.
func readJSON(data []byte) (node, []fault) {
	at := newLines(data)
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		f := fault{code: "config.syntax", line: len(at), text: syntaxText("JSON", err.Error())}
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			f.line = at.lineOf(max(0, int(syntax.Offset)-1))
		}
		return node{kind: sectionKind}, []fault{f}
	}
	j := jsonBuilder{lines: at, decoder: json.NewDecoder(bytes.NewReader(data))}
	j.decoder.UseNumber()
	return j.done(j.next())
}

// jsonBuilder builds nodes from tokens. The decoder's own maps would lose lines
// and duplicate keys.
type jsonBuilder struct {
	builder
	lines   lines
	decoder *json.Decoder
}

// token returns the next token and its line. The input was validated before; if
// the decoder disagrees, the reading stops.
func (j *jsonBuilder) token() (json.Token, int) {
	t, err := j.decoder.Token()
	line := j.lines.lineOf(max(0, int(j.decoder.InputOffset())-1))
	if err != nil && !j.full {
		j.full = true
		j.fault("config.syntax", line, syntaxText("JSON", err.Error()), "")
	}
	return t, line
}

func (j *jsonBuilder) next() node {
	t, line := j.token()
	defer j.leave()
	if !j.enter(line) {
		return node{kind: nullKind, line: line}
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return j.object(line)
		}
		return j.array(line)
	case string:
		return node{kind: textKind, text: t, line: line}
	case json.Number:
		return node{kind: numberKind, text: t.String(), line: line}
	case bool:
		return node{kind: boolKind, text: strconv.FormatBool(t), line: line}
	}
	return node{kind: nullKind, line: line}
}

func (j *jsonBuilder) object(line int) node {
	var parts []part
	for !j.full && j.decoder.More() {
		t, at := j.token()
		key, _ := t.(string) // JSON has no other keys than strings
		parts = append(parts, part{key, at, j.next()})
	}
	j.token()
	return j.section(line, parts)
}

func (j *jsonBuilder) array(line int) node {
	list := node{kind: listKind, line: line}
	for !j.full && j.decoder.More() {
		list.items = append(list.items, j.next())
	}
	j.token()
	return list
}
