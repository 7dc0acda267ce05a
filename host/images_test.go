package host

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// picture is a guest of which no more is known than its size and whether it was freed.
type picture struct {
	guest
	freed bool
}

func (p *picture) Size() int64                 { return 1 << 20 }
func (p *picture) Close(context.Context) error { p.freed = true; return nil }

// An agent whose code has a new version every so often keeps the newest and what is in use, whatever room there is; code that other agents
// still call stays, and code that nobody has called yet.
func TestOldImagesGo(t *testing.T) {
	s := newImages(1 << 30)
	all := map[string]*picture{}
	load := func(name string) *entry {
		all[name] = &picture{}
		e, err := s.get(t.Context(), key{byte(len(all))}, func(context.Context) (guest, error) { return all[name], nil })
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	call := func(e *entry, name string, by ...string) {
		for _, a := range by {
			s.name(agent.Digest(name), e, caller{"app", a})
		}
	}
	age := func() { // as if a while had passed
		for _, e := range s.entries {
			e.used = e.used.Add(-oldAfter)
		}
	}
	s.release(load("waits to be called"))
	shared := load("shared")
	call(shared, "shared", "changing", "faithful")
	s.release(shared)
	busy := load("busy")
	call(busy, "busy", "changing")
	for i := range 20 {
		name := fmt.Sprint("version ", i)
		e := load(name)
		call(e, name, "changing")
		s.release(e)
		age()
	}
	s.release(load("last"))
	kept := 0
	for name, p := range all {
		if !p.freed {
			kept++
		}
		if want := name == "version 19" || name == "waits to be called" || name == "shared" || name == "busy" || name == "last"; p.freed == want {
			t.Errorf("%s: freed %v", name, p.freed)
		}
	}
	if s.bytes != int64(kept)<<20 || len(s.newest) != 2 || len(s.entries) != kept {
		t.Errorf("%d bytes in %d entries, of %d agents; want %d", s.bytes, len(s.entries), len(s.newest), kept)
	}

	// Who is called by nobody any more is kept as long as runs may go on with it, and found by them.
	if e := s.byDigest("version 19", caller{"app", "changing"}); e == nil {
		t.Fatal("the newest version is not found")
	} else {
		s.release(e)
	}
	e := s.byDigest("shared", caller{"app", "faithful"})
	call(busy, "busy", "faithful") // gone on, while a call of it is under way
	age()
	s.release(load("another"))
	if all["shared"].freed {
		t.Error("an image in use was freed")
	}
	s.release(e)
	s.release(load("yet another"))
	if all["shared"].freed {
		t.Error("an image was freed that was used just now")
	}
	s.entries[e.key].used = time.Now().Add(-oldAfter)
	s.release(load("and another"))
	if !all["shared"].freed {
		t.Error("an old image is kept")
	}
}
