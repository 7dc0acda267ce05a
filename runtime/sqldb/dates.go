package sqldb

import (
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// dateFunctions are SQLite's functions of time (https://sqlite.org/lang_datefunc.html), with the place of the first time among their
// arguments.
var dateFunctions = map[string]int{"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1, "timediff": 0}

// maxDateCalls is how many of them are kept prepared.
const maxDateCalls = 32

// dates answers functions of time. Once they are replaced in a connection its own cannot be reached there, so another computes them,
// with the caller's time in the place of 'now' and UTC as the local zone.
type dates struct {
	*library
	stmts map[string]*sqlite3.Stmt
}

func (c *conn) date(ctx sqlite3.Context, name string, at int, args []sqlite3.Value) {
	if c.dates == nil {
		l, err := openLibrary(":memory:", minMemory)
		if err != nil {
			ctx.ResultError(err)
			return
		}
		l.Limit(sqlite3.LIMIT_LENGTH, MaxValue)
		c.dates = &dates{l, map[string]*sqlite3.Stmt{}}
	}
	if err := c.dates.call(ctx, name, c.times(name, at, args)); err != nil {
		ctx.ResultError(err)
	}
}

// nowText is the call's time as SQLite reads it, to the millisecond.
func (c *conn) nowText() string { return c.db.now.UTC().Format("2006-01-02 15:04:05.000") }

// times returns the arguments with the caller's time in them.
func (c *conn) times(name string, at int, args []sqlite3.Value) []any {
	out := make([]any, 0, len(args)+2)
	for i, a := range args {
		isTime := i == at || name == "timediff"
		text := ""
		if a.Type() == sqlite3.TEXT {
			text = a.Text()
		}
		switch {
		case isTime && strings.EqualFold(text, "now"):
			out = append(out, c.nowText())
		case i == at && name != "timediff" && (strings.EqualFold(text, "subsec") || strings.EqualFold(text, "subsecond")):
			out = append(out, c.nowText(), text)
		case !isTime && i > at && (strings.EqualFold(text, "localtime") || strings.EqualFold(text, "utc")):
		default:
			out = append(out, a)
		}
	}
	if len(args) == at { // no time is now
		out = append(out, c.nowText())
	}
	return out
}

// call makes what the function of that name gives for args the result of ctx.
func (d *dates) call(ctx sqlite3.Context, name string, args []any) error {
	sql := "SELECT " + name + "(" + strings.TrimSuffix(strings.Repeat("?,", len(args)), ",") + ")"
	s := d.stmts[sql]
	if s == nil {
		var err error
		if s, _, err = d.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT); err != nil {
			return err
		}
		if len(d.stmts) < maxDateCalls {
			d.stmts[sql] = s
		} else {
			defer s.Close()
		}
	}
	defer s.Reset()
	for i, a := range args {
		if err := bindArg(s, i+1, a); err != nil {
			return err
		}
	}
	if !s.Step() {
		return s.Err()
	}
	switch s.ColumnType(0) {
	case sqlite3.TEXT:
		ctx.ResultText(s.ColumnText(0))
	case sqlite3.INTEGER:
		ctx.ResultInt64(s.ColumnInt64(0))
	case sqlite3.FLOAT:
		ctx.ResultFloat(s.ColumnFloat(0))
	}
	return nil
}

// bindArg binds a text, or a value of another connection.
func bindArg(s *sqlite3.Stmt, i int, a any) error {
	v, ok := a.(sqlite3.Value)
	if !ok {
		return s.BindText(i, a.(string))
	}
	switch v.Type() {
	case sqlite3.INTEGER:
		return s.BindInt64(i, v.Int64())
	case sqlite3.FLOAT:
		return s.BindFloat(i, v.Float())
	case sqlite3.TEXT:
		return s.BindText(i, v.Text())
	case sqlite3.BLOB:
		return s.BindBlob(i, v.Blob([]byte{}))
	}
	return s.BindNull(i)
}
