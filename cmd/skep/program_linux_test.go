package main

import (
	"os"
	"reflect"
	"slices"
	"testing"
)

func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00002000 fe:00 7                           /bin/skep
Rss:                 900 kB
Anonymous:             0 kB
00500000-00600000 r--p 00102000 fe:00 7                           /bin/skep
Anonymous:             4 kB
00600000-00700000 rw-p 00202000 fe:00 7                           /bin/skep
Anonymous:             0 kB
00700000-00800000 r--s 00302000 fe:00 7                           /bin/skep
Anonymous:             0 kB
00800000-00900000 r-xp 00000000 fe:00 8                           /lib/other/bin/skep
Anonymous:             0 kB
00900000-00a00000 r-xp 00000000 00:00 0 
Anonymous:             0 kB
00a00000-00b00000 r--p 00402000 fe:00 7                           /bin/skep
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x500000}, {0xa00000, 0xb00000}}
	if got := cleanMappings([]byte(smaps), "/bin/skep"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// The program runs on when its pages are dropped, and what is dropped is its code.
func TestDropProgram(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := reflect.ValueOf(TestDropProgram).Pointer()
	holds := func(m mapping) bool { return m.from <= here && here < m.to }
	if clean := cleanMappings(maps, file); !slices.ContainsFunc(clean, holds) {
		t.Errorf("the code is at %x, and in none of %x", here, clean)
	}
	if err := dropProgram(); err != nil {
		t.Error(err)
	}
}
