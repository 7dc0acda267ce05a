package sqldb

import (
	"context"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// Query runs statements and returns what the last of them did. One that fails changes nothing; those before it stay, as SQLite does it.
//
// Errors: Invalid (not SQL, parameters that do not fit, no such table), Conflict (a constraint), Denied (a statement that is never
// allowed), Exhausted (LimitOutput, LimitMemory, LimitState, LimitWall when ctx's time is over), Cancelled, and those of Pages.
func (db *DB) Query(ctx context.Context, q abi.SQL) (rows abi.SQLRows, err error) {
	switch {
	case len(q.Query) > MaxQuery:
		return rows, agent.Exceeded(agent.LimitInput, "the SQL has %d bytes, more than %d", len(q.Query), MaxQuery)
	case strings.ContainsRune(q.Query, 0) || !utf8.ValidString(q.Query):
		return rows, hinted(agent.Errorf(agent.Invalid, "the SQL is not text without NUL characters"), "give such values as parameters")
	case len(q.Params) > MaxParams:
		return rows, agent.Exceeded(agent.LimitInput, "%d parameters are too many for a statement: %d are allowed", len(q.Params), MaxParams)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case db.closed:
		return rows, agent.Errorf(agent.Unavailable, "the SQL database is closed")
	case db.failed != nil:
		return rows, db.failed
	case ctx.Err() != nil:
		return rows, stopped(ctx)
	}
	// The library panics when it is out of memory, and would when it ran into a fault of its own: its memory is not ours, so that
	// costs the connection and nothing else.
	defer func() {
		if p := recover(); p != nil {
			rows, err = abi.SQLRows{}, db.broke(p)
		}
		db.file.done()
	}()
	if err := db.file.load(ctx); err != nil {
		return rows, err
	}
	db.file.begin(ctx)
	if db.c == nil {
		if db.c, err = connect(db); err != nil {
			return rows, db.explain(ctx, err)
		}
	}
	db.now = db.o.Now()
	db.c.SetInterrupt(ctx)
	rows, err = db.c.run(q)
	if err != nil {
		return abi.SQLRows{}, db.explain(ctx, err)
	}
	return rows, nil
}

// broke drops a connection that panicked, and what the call had written.
func (db *DB) broke(p any) error {
	open := db.inTransaction()
	db.drop()
	db.file.back()
	return faulted(p, open)
}

// inTransaction asks a connection that may not be able to tell.
func (db *DB) inTransaction() (open bool) {
	defer func() { _ = recover() }()
	return db.c != nil && !db.c.GetAutocommit()
}

// run runs a call's statements.
func (c *conn) run(q abi.SQL) (rows abi.SQLRows, err error) {
	ran := false
	for sql := q.Query; sql != ""; {
		s, tail, err := c.prepare(sql)
		if err != nil {
			return rows, err
		}
		if s == nil { // a comment, or nothing
			sql = tail
			continue
		}
		if len(q.Params) > 0 && !c.alone(tail) {
			c.done(sql, s)
			return rows, hinted(agent.Errorf(agent.Invalid, "several statements take no parameters"), "run the statements one by one")
		}
		changes := rows.Changes
		rows, err = c.step(s, q.Params)
		c.done(sql, s)
		if err != nil {
			return rows, err
		}
		rows.Changes += changes
		ran, sql = true, tail
	}
	if !ran {
		return rows, agent.Errorf(agent.Invalid, "the SQL has no statement")
	}
	return rows, nil
}

// alone reports whether nothing but comments follows a statement.
func (c *conn) alone(tail string) bool {
	for tail != "" {
		s, rest, err := c.Prepare(tail)
		if s != nil {
			s.Close()
		}
		if err != nil || s != nil {
			return false
		}
		tail = rest
	}
	return true
}

// step runs one statement.
func (c *conn) step(s *sqlite3.Stmt, params []abi.SQLValue) (rows abi.SQLRows, err error) {
	if n := s.BindCount(); n != len(params) {
		return rows, agent.Errorf(agent.Invalid, "the statement takes %d parameters, %d were given", n, len(params))
	}
	for i, p := range params {
		if err := bind(s, i+1, p); err != nil {
			return rows, err
		}
	}
	rows = abi.SQLRows{Columns: make([]string, s.ColumnCount()), Rows: [][]abi.SQLValue{}}
	for i := range rows.Columns {
		rows.Columns[i] = s.ColumnName(i)
	}
	// The changes of a statement with RETURNING are made before its first row, so to undo them when there are too many rows it needs
	// a transaction.
	if len(rows.Columns) > 0 && !s.ReadOnly() && !isPragma(s.SQL()) {
		return rows, c.within(func() error { return c.fetch(s, &rows) })
	}
	return rows, c.fetch(s, &rows)
}

func (c *conn) fetch(s *sqlite3.Stmt, rows *abi.SQLRows) error {
	c.stepping = true
	defer func() { c.stepping = false }()
	changed, size := c.TotalChanges(), 0
	for s.Step() {
		if len(rows.Rows) == MaxRows {
			return hinted(agent.Exceeded(agent.LimitOutput, "the statement returns more than %d rows", MaxRows), "page through them with LIMIT and a WHERE on the last key")
		}
		row := make([]abi.SQLValue, len(rows.Columns))
		for i := range row {
			n, err := value(s, i, &row[i])
			if err != nil {
				return err
			}
			if size += n; size > MaxResult {
				return hinted(agent.Exceeded(agent.LimitOutput, "the statement returns more than %d bytes", MaxResult), "select fewer columns, or page through the rows with LIMIT")
			}
		}
		rows.Rows = append(rows.Rows, row)
	}
	if err := s.Err(); err != nil {
		return err
	}
	if c.TotalChanges() != changed {
		rows.Changes = c.Changes()
	}
	return nil
}

// within does f in a savepoint, which is undone when it fails.
func (c *conn) within(f func() error) error {
	const name = `"skep statement"`
	if err := c.ours("SAVEPOINT " + name); err != nil {
		return err
	}
	err := f()
	if err != nil {
		for s := range c.Stmts() {
			if s.Busy() {
				s.Reset()
			}
		}
		if c.GetAutocommit() { // the library has undone all
			return err
		}
		if err := c.ours("ROLLBACK TO " + name); err != nil {
			return err
		}
	}
	if e := c.ours("RELEASE " + name); e != nil && err == nil {
		err = e
	}
	return err
}

func isPragma(sql string) bool {
	sql = strings.TrimLeft(sql, " \t\r\n")
	return len(sql) >= 6 && strings.EqualFold(sql[:6], "pragma")
}

// bind gives a statement its parameter i, from 1.
func bind(s *sqlite3.Stmt, i int, v abi.SQLValue) error {
	fields := 0
	for _, there := range []bool{v.Int != nil, v.Real != nil, v.Text != nil, v.Bytes != nil} {
		if there {
			fields++
		}
	}
	switch {
	case fields > 1:
		return agent.Errorf(agent.Invalid, "parameter %d has more than one value", i)
	case v.Int != nil:
		return s.BindInt64(i, *v.Int)
	case v.Real != nil && (math.IsNaN(*v.Real) || math.IsInf(*v.Real, 0)):
		return agent.Errorf(agent.Invalid, "parameter %d is not a finite number", i)
	case v.Real != nil:
		return s.BindFloat(i, *v.Real)
	case v.Text != nil && len(*v.Text) > MaxValue, v.Bytes != nil && len(*v.Bytes) > MaxValue:
		return hinted(agent.Exceeded(agent.LimitInput, "parameter %d has more than %d bytes", i, MaxValue), "keep what is large in files, and its name in the database")
	case v.Text != nil && !utf8.ValidString(*v.Text):
		return hinted(agent.Errorf(agent.Invalid, "parameter %d is text that is not valid UTF-8", i), "give it as bytes")
	case v.Text != nil:
		return s.BindText(i, *v.Text)
	case v.Bytes != nil && len(*v.Bytes) == 0:
		return s.BindZeroBlob(i, 0)
	case v.Bytes != nil:
		return s.BindBlob(i, *v.Bytes)
	}
	return s.BindNull(i)
}

// value reads a column, and returns what it counts for.
func value(s *sqlite3.Stmt, i int, v *abi.SQLValue) (size int, err error) {
	const each = 16
	switch s.ColumnType(i) {
	case sqlite3.INTEGER:
		n := s.ColumnInt64(i)
		v.Int = &n
	case sqlite3.FLOAT:
		x := s.ColumnFloat(i)
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return 0, agent.Errorf(agent.Invalid, "column %q has an infinite number, which cannot be returned", clip(s.ColumnName(i)))
		}
		v.Real = &x
	case sqlite3.TEXT:
		// Text may hold any bytes in SQLite, by a cast. What is no text to others is returned as bytes.
		b := s.ColumnRawText(i)
		if size = len(b); utf8.Valid(b) {
			t := string(b)
			v.Text = &t
		} else {
			b = append([]byte{}, b...)
			v.Bytes = &b
		}
	case sqlite3.BLOB:
		b := s.ColumnBlob(i, []byte{})
		size, v.Bytes = len(b), &b
	}
	return size + each, nil
}
