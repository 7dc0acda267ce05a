package image

import (
	"runtime"
	"testing"
	"time"
)

// CacheEntry returns where in cache the files of a CLI would be that npm has got, and the folder of its program in node_modules.
func CacheEntry(t *testing.T, cache, word string) (dir, folder string) {
	t.Helper()
	k, version, err := findCLI(word)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cpuOf(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	src := knownSource(k, version, c)
	s := Spec{Cache: cache, Now: time.Now()}
	if _, err := s.cacheDir(); err != nil {
		t.Fatal(err)
	}
	return src.place(cache, c), src.folder
}
