package sqldb

import (
	"context"
	"fmt"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/ext/fts5"
)

// maxStatements is how many prepared statements a connection keeps.
const maxStatements = 32

// conn is a connection to a DB's file.
type conn struct {
	*library
	db       *DB
	kept     map[string]*sqlite3.Stmt
	order    []string // of kept, oldest first
	dates    *dates   // nil until it is needed
	opening  bool     // what runs is ours
	stepping bool     // a statement runs, so what is prepared is the library's own
	refused  string   // why a statement was
	changes0 int64    // what the library had counted when the turn began
	pragmas  bool     // the turn changed some
}

// connect opens the library on db's file. An error or a panic leaves nothing open.
func connect(db *DB) (c *conn, err error) {
	c = &conn{db: db, opening: true}
	done := false
	defer func() {
		if !done {
			db.file.open = false
			if c.library != nil {
				c.end()
			}
		}
	}()
	if c.library, err = openLibrary("file:"+dbName+"?vfs="+db.name, db.o.Memory); err != nil {
		return nil, err
	}
	for limit, n := range map[sqlite3.LimitCategory]int{
		sqlite3.LIMIT_LENGTH: MaxValue, sqlite3.LIMIT_SQL_LENGTH: MaxQuery, sqlite3.LIMIT_COLUMN: MaxColumns, sqlite3.LIMIT_VARIABLE_NUMBER: MaxParams,
		sqlite3.LIMIT_EXPR_DEPTH: 200, sqlite3.LIMIT_PARSER_DEPTH: 200, sqlite3.LIMIT_COMPOUND_SELECT: 100, sqlite3.LIMIT_VDBE_OP: 250_000,
		sqlite3.LIMIT_FUNCTION_ARG: 100, sqlite3.LIMIT_ATTACHED: 1, sqlite3.LIMIT_LIKE_PATTERN_LENGTH: 100, sqlite3.LIMIT_TRIGGER_DEPTH: 32,
	} {
		c.Limit(limit, n)
	}
	// A journal in memory undoes a statement that failed; the turn undoes the rest. Nothing is written before a transaction ends
	// (cache_spill), so what is flushed is never half of one. In exclusive mode the first page does not change with each transaction.
	if err = c.Exec(fmt.Sprintf(`PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE; PRAGMA temp_store=MEMORY;
		PRAGMA cache_spill=OFF; PRAGMA trusted_schema=OFF; PRAGMA cache_size=-%d; PRAGMA max_page_count=%d`, db.o.Cache>>10, db.o.Bytes/PageSize)); err != nil {
		return nil, err
	}
	if _, err = c.Config(sqlite3.DBCONFIG_DEFENSIVE, true); err != nil {
		return nil, err
	}
	if err = fts5.Register(c.Conn); err != nil {
		return nil, err
	}
	if err = c.register(); err != nil {
		return nil, err
	}
	if err = c.SetAuthorizer(c.authorize); err != nil {
		return nil, err
	}
	c.opening, done = false, true
	return c, nil
}

// fresh forgets what earlier turns left in the connection.
func (c *conn) fresh() error {
	c.SetLastInsertRowID(0)
	c.changes0 = c.TotalChanges()
	if !c.pragmas {
		return nil
	}
	c.pragmas = false
	_, err := c.Config(sqlite3.DBCONFIG_ENABLE_FKEY, true)
	return err
}

// ours runs a statement of ours, also when the call's time is over.
func (c *conn) ours(sql string) error {
	c.opening = true
	was := c.SetInterrupt(context.Background())
	defer func() {
		c.opening = false
		c.SetInterrupt(was)
	}()
	return c.Exec(sql)
}

// prepare returns the first statement of sql, nil when there is none, and what follows it. What may be run again is kept.
func (c *conn) prepare(sql string) (s *sqlite3.Stmt, tail string, err error) {
	c.refused = ""
	if s := c.kept[sql]; s != nil {
		return s, "", nil
	}
	s, tail, err = c.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
	if err != nil || s == nil || tail != "" {
		return s, tail, err
	}
	if len(c.order) == maxStatements {
		old := c.order[0]
		c.order = append(c.order[:0], c.order[1:]...)
		c.kept[old].Close()
		delete(c.kept, old)
	}
	if c.kept == nil {
		c.kept = map[string]*sqlite3.Stmt{}
	}
	c.kept[sql] = s
	c.order = append(c.order, sql)
	return s, "", nil
}

// done is called when a statement of prepare has run.
func (c *conn) done(sql string, s *sqlite3.Stmt) {
	if c.kept[sql] == s {
		s.Reset()
		s.ClearBindings()
		return
	}
	s.Close()
}

// memory returns the bytes of the connection's memories.
func (c *conn) memory() int64 {
	n := c.library.memory()
	if c.dates != nil {
		n += c.dates.memory()
	}
	return n
}

func (c *conn) end() {
	if c.dates != nil {
		c.dates.end()
	}
	c.library.end()
}
