package main

import (
	"io/fs"
	"testing/fstest"
	"time"
)

// budget is what the hook that takes too long has.
const budget = 100 * time.Millisecond

// pages do not parse.
var pages = fstest.MapFS{"home.html": {Data: []byte("<p>{{.Name</p>")}}

// texts lack one in Korean.
var texts = fstest.MapFS{
	"en.toml": {Data: []byte("hello = \"Hello\"\nbye = \"Good bye\"\n")},
	"ko.toml": {Data: []byte("hello = \"안녕하세요\"\n")},
}

// unreadable is a folder whose one file cannot be read.
type unreadable struct{}

func (unreadable) Open(name string) (fs.File, error) {
	f, err := fstest.MapFS{"logo.png": {Data: []byte("x")}}.Open(name)
	if err == nil && name == "logo.png" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f, err
}
