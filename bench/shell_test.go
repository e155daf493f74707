package main

import (
	"strings"
	"testing"
)

func TestShellRowNamesTheMissingPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := newScripts(t.Context(), &lab{})
	if err == nil || !strings.Contains(err.Error(), "install the package") {
		t.Errorf("got %v", err)
	}
}
