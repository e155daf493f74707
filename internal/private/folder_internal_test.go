//go:build linux || darwin

package private

import (
	"strings"
	"testing"
)

func TestFolderOfAnotherUserIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := checkFolder(dir, 424242); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("got %v", err)
	}
}
