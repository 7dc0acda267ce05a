// Package engine opens the database of a data directory by the name of its kind.
package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/badgerkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/store/pebblekv"
)

// Kind is a kind of database.
type Kind uint8

const (
	Unknown Kind = iota // what the directory holds, else Badger
	Badger
	Pebble
	Memory // forgets everything when it is closed
)

var names = [...]string{Unknown: "", Badger: "badger", Pebble: "pebble", Memory: "memory"}

func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("engine.Kind(%d)", uint8(k))
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, name := range names {
		if name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return agent.Errorf(agent.Invalid, "there is no kind of store %.40q: use badger, pebble or memory", b)
}

// Options sets what its defaults do not fit. nil and zero fields mean the defaults.
type Options struct {
	MinFree int64        // bytes the disk must have left to open the database; 0 means 64 MiB, a negative one asks for none
	Verify  bool         // read all of a database that does not verify what it reads later
	Log     *slog.Logger // nil says nothing
}

// Dir is where the database of a data directory is.
func Dir(data string) string { return filepath.Join(data, "db") }

// Open opens the database of a data directory, or makes one. A directory that holds another kind is refused.
func Open(data string, k Kind, o *Options) (kv.DB, error) {
	if o == nil {
		o = &Options{}
	}
	if k == Memory {
		return memkv.New(), nil
	}
	there, err := Detect(data)
	if err != nil {
		return nil, err
	}
	switch {
	case k == Unknown:
		k = there
	case there != Unknown && there != k:
		return nil, &agent.Error{
			Kind: agent.Conflict, Msg: fmt.Sprintf("the data directory %s holds a store of kind %s, not %s", data, there, k),
			Hint: fmt.Sprintf("leave out --store; to convert it: skep backup --to FILE, then skep restore --from FILE --store %s --data NEW", k),
		}
	}
	if k == Pebble {
		return opened(pebblekv.Open(Dir(data), &pebblekv.Options{MinFree: o.MinFree, Log: o.Log}))
	}
	return opened(badgerkv.Open(Dir(data), &badgerkv.Options{MinFree: o.MinFree, Verify: o.Verify, Log: o.Log}))
}

// opened keeps a nil pointer from becoming a DB.
func opened[D kv.DB](db D, err error) (kv.DB, error) {
	if err != nil {
		return nil, err
	}
	return db, nil
}

// Detect returns the kind of database in a data directory, or Unknown when there is none. It goes by the names of files.
func Detect(data string) (Kind, error) {
	files, err := os.ReadDir(Dir(data))
	if errors.Is(err, fs.ErrNotExist) {
		return Unknown, nil
	}
	if err != nil {
		return Unknown, agent.Wrap(agent.Unavailable, err, "cannot read the data directory")
	}
	for _, f := range files {
		name := f.Name()
		switch {
		case name == "MANIFEST", name == "KEYREGISTRY", strings.HasSuffix(name, ".mem"), strings.HasSuffix(name, ".vlog"):
			return Badger, nil
		case strings.HasPrefix(name, "MANIFEST-"), strings.HasPrefix(name, "OPTIONS-"), strings.HasPrefix(name, "marker."):
			return Pebble, nil
		}
	}
	return Unknown, nil
}
