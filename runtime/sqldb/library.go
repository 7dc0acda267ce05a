package sqldb

import (
	"context"
	"slices"

	"github.com/ncruces/go-sqlite3"
)

// library is an instance of SQLite, with one connection and a memory of its own.
type library struct {
	*sqlite3.Conn
	env *sqlite3.ExtEnv // reaches the memory
}

// askEvery is after how many of its instructions the library asks whether to stop. One of them may be a function that reads a text of
// MaxValue, so the binding's own 1000 may take seconds.
const askEvery = 100

// extension is loaded to learn of the memory, and to have the library ask more often.
type extension struct{ env *sqlite3.ExtEnv }

func (e extension) Xsqlite3_extension_init(db, _, _ int32) int32 {
	e.env.Xsqlite3_progress_handler_go(db, askEvery)
	return 0
}

func openLibrary(name string, memory int64) (*library, error) {
	c, err := sqlite3.OpenContext(sqlite3.WithMaxMemory(context.Background(), memory), name)
	if err != nil {
		return nil, err
	}
	l := &library{Conn: c}
	//lint:ignore SA1019 what is to replace it needs a newer language
	if err := sqlite3.ExtensionInit(c, func(e *sqlite3.ExtEnv) extension {
		l.env = e
		return extension{e}
	}, func() (int64, int64, int64, int64) { return 0, 1, 0, 1 }); err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// memory returns how many bytes the instance has.
func (l *library) memory() int64 { return int64(len(l.env.Buf)) }

// end closes the connection, also one that broke: then its memory is given back without asking the library, which would leak it.
func (l *library) end() {
	defer func() {
		if recover() != nil && l.env != nil {
			l.env.Close()
		}
	}()
	for _, s := range slices.Collect(l.Stmts()) {
		s.Close()
	}
	if err := l.Close(); err != nil {
		panic(err)
	}
}
