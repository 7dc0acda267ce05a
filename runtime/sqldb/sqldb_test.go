package sqldb_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/sqldb"
)

// memory is pages in a map, with what was kept and what a turn has changed.
type memory struct {
	kept, turn map[int64][]byte
	fail       error // of the next write
	reads      int
}

func newMemory() *memory { return &memory{map[int64][]byte{}, map[int64][]byte{}, nil, 0} }

func (m *memory) commit() { m.kept = maps.Clone(m.turn) }
func (m *memory) undo()   { m.turn = maps.Clone(m.kept) }

func (m *memory) Read(_ context.Context, n int64) ([]byte, error) {
	m.reads++
	return m.turn[n], nil
}

func (m *memory) Write(_ context.Context, n int64, page []byte) error {
	if m.fail != nil {
		return m.fail
	}
	m.turn[n] = slices.Clone(page)
	return nil
}

func (m *memory) Truncate(_ context.Context, pages int64) error {
	maps.DeleteFunc(m.turn, func(n int64, _ []byte) bool { return n >= pages })
	return nil
}

func open(t testing.TB, p sqldb.Pages, o *sqldb.Options) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func ptr[T any](v T) *T { return &v }

func params(vs ...any) (out []abi.SQLValue) {
	for _, v := range vs {
		switch v := v.(type) {
		case nil:
			out = append(out, abi.SQLValue{})
		case int:
			out = append(out, abi.SQLValue{Int: ptr(int64(v))})
		case int64:
			out = append(out, abi.SQLValue{Int: &v})
		case float64:
			out = append(out, abi.SQLValue{Real: &v})
		case string:
			out = append(out, abi.SQLValue{Text: &v})
		case []byte:
			out = append(out, abi.SQLValue{Bytes: &v})
		default:
			panic("no SQL value")
		}
	}
	return out
}

func query(t testing.TB, db *sqldb.DB, sql string, vs ...any) abi.SQLRows {
	t.Helper()
	rows, err := db.Query(t.Context(), abi.SQL{Query: sql, Params: params(vs...)})
	if err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
	return rows
}

func text(rows abi.SQLRows) string {
	var b strings.Builder
	for i, row := range rows.Rows {
		if i > 0 {
			b.WriteString(";")
		}
		for j, v := range row {
			if j > 0 {
				b.WriteString(",")
			}
			b.WriteString(show(v))
		}
	}
	return b.String()
}

func want(t testing.TB, db *sqldb.DB, sql, want string, vs ...any) {
	t.Helper()
	if got := text(query(t, db, sql, vs...)); got != want {
		t.Errorf("%.200s\n got %.300s\nwant %.300s", sql, got, want)
	}
}

func finish(t testing.TB, db *sqldb.DB) {
	t.Helper()
	if err := db.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func refused(t testing.TB, db *sqldb.DB, kind agent.Kind, limit agent.Limit, part, sql string, vs ...any) {
	t.Helper()
	_, err := db.Query(t.Context(), abi.SQL{Query: sql, Params: params(vs...)})
	e := agent.AsError(err)
	if e == nil || e.Kind != kind || e.Limit != limit || !strings.Contains(e.Msg, part) {
		t.Errorf("%.120s\n got %v (%v)\nwant %s %s %q", sql, err, agent.KindOf(err), kind, limit, part)
	}
}

// A turn that is kept is there for another database over the same pages, one that is not never was.
func TestTurns(t *testing.T) {
	m := newMemory()
	db := open(t, m, nil)
	query(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t (v) VALUES ('a')")
	if len(m.turn) != 0 {
		t.Error("pages were written before the end of the turn")
	}
	finish(t, db)
	m.commit()
	want(t, open(t, m, nil), "SELECT id, v FROM t", "1,'a'")

	db.Begin(m, nil, nil)
	query(t, db, "INSERT INTO t (v) VALUES ('b'); CREATE TABLE u (x)")
	finish(t, db)
	m.undo()
	db.Undo()
	db.Begin(nil, nil, nil)
	want(t, db, "SELECT v FROM t", "'a'")
	refused(t, db, agent.Invalid, 0, "no such table: u", "SELECT * FROM u")

	// A warm database answers from its cache.
	reads := m.reads
	db.Begin(m, nil, nil)
	want(t, db, "SELECT v FROM t WHERE id = 1", "'a'")
	db.Undo()
	want(t, db, "SELECT v FROM t WHERE id = ?", "'a'", 1)
	if m.reads != reads {
		t.Errorf("%d pages were read for a warm database", m.reads-reads)
	}

	// What somebody else wrote is seen after Invalidate.
	other := open(t, m, nil)
	query(t, other, "INSERT INTO t (v) VALUES ('c')")
	finish(t, other)
	m.commit()
	db.Invalidate()
	want(t, db, "SELECT v FROM t ORDER BY id", "'a';'c'")
	if db.Memory() == 0 {
		t.Error("an open database has no memory")
	}
	db.Close()
	db.Close()
	refused(t, db, agent.Unavailable, 0, "closed", "SELECT 1")
}

// What one turn leaves in the connection is not seen by the next, which may have another.
func TestNothingStays(t *testing.T) {
	m := newMemory()
	db := open(t, m, nil)
	query(t, db, "CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p); INSERT INTO p VALUES (7); PRAGMA foreign_keys=OFF; INSERT INTO c VALUES (9)")
	want(t, db, "SELECT last_insert_rowid(), changes(), total_changes()", "1,1,2")
	finish(t, db)
	m.commit()
	db.Begin(m, nil, nil)
	want(t, db, "SELECT last_insert_rowid(), changes(), total_changes()", "0,0,0")
	refused(t, db, agent.Conflict, 0, "FOREIGN KEY", "INSERT INTO c VALUES (8)")
}

func TestTransactions(t *testing.T) {
	m := newMemory()
	db := open(t, m, nil)
	query(t, db, "CREATE TABLE t (v UNIQUE); INSERT INTO t VALUES (1)")
	// A statement that fails changes nothing, and what was before it in the turn stays.
	refused(t, db, agent.Conflict, 0, "UNIQUE constraint failed: t.v", "INSERT INTO t VALUES (2), (3), (1)")
	want(t, db, "SELECT v FROM t", "1")
	query(t, db, "BEGIN; INSERT INTO t VALUES (2); SAVEPOINT a; INSERT INTO t VALUES (3); ROLLBACK TO a; INSERT INTO t VALUES (4)")
	query(t, db, "COMMIT")
	want(t, db, "SELECT v FROM t", "1;2;4")
	query(t, db, "BEGIN; DELETE FROM t")
	query(t, db, "ROLLBACK")
	want(t, db, "SELECT count(*) FROM t", "3")
	finish(t, db)
	m.commit()

	db.Begin(m, nil, nil)
	query(t, db, "BEGIN")
	query(t, db, "DELETE FROM t")
	err := db.Finish(t.Context())
	if e := agent.AsError(err); e == nil || e.Kind != agent.Invalid || !strings.Contains(e.Msg, "still open") || e.Hint == "" {
		t.Fatalf("Finish with an open transaction: %v", err)
	}
	refused(t, db, agent.Invalid, 0, "still open", "SELECT 1") // until it is undone
	m.undo()
	db.Undo()
	db.Begin(m, nil, nil)
	want(t, db, "SELECT count(*) FROM t", "3")
	query(t, db, "BEGIN; DELETE FROM t")
	db.Undo()
	want(t, db, "SELECT count(*) FROM t", "3")
	finish(t, db)
}

// A turn that ends without a word was not.
func TestForgottenTurn(t *testing.T) {
	m := newMemory()
	db := open(t, m, nil)
	query(t, db, "CREATE TABLE t (v)")
	finish(t, db)
	for _, sql := range []string{"INSERT INTO t VALUES (1)", "BEGIN; INSERT INTO t VALUES (1)", "BEGIN"} {
		db.Begin(m, nil, nil)
		query(t, db, sql)
		db.Begin(m, nil, nil)
		want(t, db, "SELECT count(*) FROM t", "0")
		finish(t, db)
	}
}

// Calls of one turn may overlap.
func TestParallel(t *testing.T) {
	db := open(t, newMemory(), nil)
	query(t, db, "CREATE TABLE t (k PRIMARY KEY, n); INSERT INTO t VALUES ('a', 0)")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if _, err := db.Query(t.Context(), abi.SQL{Query: "UPDATE t SET n = n + 1 WHERE k = ?", Params: params("a")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	want(t, db, "SELECT n FROM t", "400")
}

func TestChanges(t *testing.T) {
	db := open(t, newMemory(), nil)
	for _, tt := range []struct {
		sql     string
		changes int64
		columns string
	}{
		{"CREATE TABLE t (a INTEGER PRIMARY KEY, b)", 0, ""},
		{"INSERT INTO t (b) VALUES (1), (2), (3)", 3, ""},
		{"SELECT * FROM t", 0, "a b"},
		{"UPDATE t SET b = 0 WHERE a > 1 RETURNING a", 2, "a"},
		{"DELETE FROM t WHERE a = 99", 0, ""},
		{"INSERT INTO t (b) VALUES (5); DELETE FROM t WHERE a < 3; SELECT 1 AS x; -- the end", 3, "x"},
	} {
		rows := query(t, db, tt.sql)
		if rows.Changes != tt.changes || strings.Join(rows.Columns, " ") != tt.columns || rows.Rows == nil {
			t.Errorf("%s: %d changes, columns %q", tt.sql, rows.Changes, rows.Columns)
		}
	}
}

func TestValues(t *testing.T) {
	db := open(t, newMemory(), nil)
	for _, v := range []any{nil, 0, int64(-1 << 63), int64(1<<63 - 1), 0.5, -1e300, "", "bee", "a\x00b", "🐝", []byte{}, []byte{0, 255}} {
		rows := query(t, db, "SELECT ?", v)
		if got, want := show(rows.Rows[0][0]), show(params(v)[0]); got != want {
			t.Errorf("%v came back as %s", v, got)
		}
	}
	want(t, db, "SELECT CAST(x'ff41' AS TEXT)", "x'ff41'") // no text to anybody else
	want(t, db, "SELECT typeof(?1), typeof(?2), typeof(?3)", "'integer','text','blob'", 1, "1", []byte("1"))
	refused(t, db, agent.Invalid, 0, "infinite", "SELECT 9e999")
	refused(t, db, agent.Invalid, 0, "UTF-8", "SELECT ?", "\xff")
	refused(t, db, agent.Invalid, 0, "takes 1 parameters, 2", "SELECT ?", 1, 2)
	refused(t, db, agent.Invalid, 0, "takes 2 parameters, 1", "SELECT ?, ?", 1)
	refused(t, db, agent.Invalid, 0, "several statements", "SELECT ?; SELECT 1", 1)
	want(t, db, "SELECT ?; -- that is all", "1", 1)
	refused(t, db, agent.Invalid, 0, "no statement", " -- nothing")
	refused(t, db, agent.Invalid, 0, "no statement", "")
	refused(t, db, agent.Invalid, 0, "NUL", "SELECT 1\x00")
	refused(t, db, agent.Invalid, 0, `syntax error, near "SELEC 1"`, "SELEC 1")
	for _, v := range []abi.SQLValue{{Int: ptr(int64(1)), Text: ptr("")}, {Real: ptr(0.0), Bytes: &[]byte{}}} {
		if _, err := db.Query(t.Context(), abi.SQL{Query: "SELECT ?", Params: []abi.SQLValue{v}}); agent.KindOf(err) != agent.Invalid {
			t.Errorf("two values in one: %v", err)
		}
	}
}

// Time and chance are the caller's.
func TestDeterministic(t *testing.T) {
	tell := func() string {
		now := time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.FixedZone("", 3600))
		db := open(t, newMemory(), &sqldb.Options{Now: func() time.Time { now = now.Add(time.Second); return now }, Random: rand.NewChaCha8([32]byte{1})})
		var out []string
		for _, sql := range []string{
			"SELECT datetime('now'), datetime(), date('now', '+1 day'), time('NOW'), julianday('now'), unixepoch('now'), unixepoch()",
			"SELECT strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%s'), datetime('now', 'localtime'), datetime('subsec'), datetime('now', 'subsec')",
			"SELECT CURRENT_TIMESTAMP, CURRENT_DATE, CURRENT_TIME, timediff('now', '2031-02-03'), timediff('2031-02-03', 'now')",
			"SELECT random(), hex(randomblob(8)), random()",
			"CREATE TABLE t (a DEFAULT CURRENT_TIMESTAMP, b DEFAULT (random()), c DEFAULT (datetime('now', '-1 day'))); INSERT INTO t DEFAULT VALUES; SELECT * FROM t",
			"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n LIMIT 5) SELECT i FROM n ORDER BY random()",
		} {
			out = append(out, text(query(t, db, sql)))
		}
		return strings.Join(out, "\n")
	}
	first := tell()
	if again := tell(); again != first {
		t.Errorf("two tellings differ:\n%s\n%s", first, again)
	}
	for _, part := range []string{"'2031-02-03 03:05:07','2031-02-03 03:05:07','2031-02-04','03:05:07'", "'2031-02-03 03:05:08.789','1927854308','2031-02-03 03:05:08','2031-02-03 03:05:08.789'",
		"'2031-02-03 03:05:09','2031-02-03','03:05:09','+0000-00-00 03:05:09.789','-0000-00-00 03:05:09.789'", "'2031-02-02 03:05:11'"} {
		if !strings.Contains(first, part) {
			t.Errorf("%s is not in\n%s", part, first)
		}
	}
}

// The functions that were replaced answer as SQLite's do.
func TestFunctions(t *testing.T) {
	db := open(t, newMemory(), nil)
	for _, tt := range []struct{ sql, want string }{
		{"instr('bee hive', 'hive'), instr('é bee', 'bee'), instr('a', ''), instr('', 'a'), instr(NULL, 'a'), instr(x'0102', x'02'), instr(123, 2)", "5,3,1,0,NULL,2,2"},
		{"replace('abab', 'a', 'xy'), replace('a', '', 'b'), replace('a', 'a', ''), replace(NULL, 1, 2), replace(121, 1, 'x')", "'xybxyb','a','',NULL,'x2x'"},
		{"trim('  a '), ltrim('  a '), rtrim('  a '), trim('éaé', 'é'), trim('abc', ''), trim('xyaxy', 'yx'), trim(NULL), trim('a', NULL), trim('aa', 'a')", "'a','a ','  a','a','abc','a',NULL,NULL,''"},
		{"unhex('4142'), unhex('41-42', '-'), unhex('4-142', '-'), unhex('4'), unhex('zz'), unhex(''), unhex(NULL), unhex('41é42', 'é')", "x'4142',x'4142',NULL,NULL,NULL,x'',NULL,x'4142'"},
		{"date('2020-02-30'), date('nonsense'), date(NULL), date('2020-01-31', '+1 month'), datetime(0, 'unixepoch'), strftime('%j', '2020-12-31'), datetime(2460000.5)", "'2020-03-01',NULL,NULL,'2020-03-02','1970-01-01 00:00:00','366','2023-02-25 00:00:00'"},
		{"json('[1, 2]'), '{\"a\":[1]}' ->> '$.a[0]', json_group_array(value) FROM json_each('[3,4]')", "'[1,2]',1,'[3,4]'"},
		{"round(sqrt(2), 3), 'abc' REGEXP '^a.c$', base64(x'00')", "1.414,1,'AA=='"},
		{"value FROM generate_series(1, 3)", "1;2;3"},
	} {
		want(t, db, "SELECT "+tt.sql, tt.want)
	}
	// They may stand where only deterministic ones may.
	query(t, db, "CREATE TABLE t (a, b AS (trim(a)) STORED, CHECK (date(a) IS NULL OR instr(a, '-') > 0)); CREATE INDEX i ON t (replace(a, 'x', 'y')); INSERT INTO t VALUES (' axa ')")
	want(t, db, "SELECT b FROM t WHERE replace(a, 'x', 'y') = ' aya '", "'axa'")
}

func TestFTS5(t *testing.T) {
	m := newMemory()
	db := open(t, m, nil)
	query(t, db, "CREATE VIRTUAL TABLE f USING fts5(title, body, tokenize = 'porter')")
	query(t, db, "INSERT INTO f VALUES ('bees', 'they are flying home'), ('wasps', 'nobody likes them')")
	want(t, db, "SELECT title, highlight(f, 1, '<', '>') FROM f WHERE f MATCH 'fly' ORDER BY bm25(f)", "'bees','they are <flying> home'")
	finish(t, db)
	m.commit()
	db.Begin(m, nil, nil)
	query(t, db, "DELETE FROM f")
	m.undo()
	db.Undo()
	want(t, db, "SELECT title FROM f WHERE f MATCH 'home'", "'bees'")
	want(t, db, "PRAGMA integrity_check", "'ok'")
	query(t, db, "INSERT INTO f (f) VALUES ('optimize'); DROP TABLE f")
	refused(t, db, agent.Invalid, 0, "no such table", "SELECT * FROM f_data")
}

func TestMaintenance(t *testing.T) {
	m := newMemory()
	db := open(t, m, nil)
	query(t, db, "CREATE TABLE t (a, b); CREATE INDEX i ON t (a)")
	query(t, db, "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n LIMIT 5000) INSERT INTO t SELECT i, hex(randomblob(40)) FROM n")
	finish(t, db)
	big := len(m.turn)
	query(t, db, "DELETE FROM t WHERE a > 10")
	query(t, db, "VACUUM")
	query(t, db, "ANALYZE; PRAGMA optimize; REINDEX; ALTER TABLE t RENAME COLUMN b TO c; ALTER TABLE t RENAME TO u; ALTER TABLE u ADD COLUMN d; ALTER TABLE u DROP COLUMN d")
	want(t, db, "SELECT count(c) FROM u", "10")
	want(t, db, "PRAGMA integrity_check", "'ok'")
	finish(t, db)
	m.commit()
	if len(m.kept) > 10 || big < 100 {
		t.Errorf("%d pages, %d after VACUUM", big, len(m.kept))
	}
	want(t, open(t, m, nil), "SELECT count(c), max(a) FROM u", "10,10")
	want(t, db, "PRAGMA table_info(u)", "0,'a','',0,NULL,0;1,'c','',0,NULL,0")
	query(t, db, "PRAGMA user_version=7")
	want(t, db, "PRAGMA user_version", "7")
	want(t, db, "SELECT name FROM pragma_index_list('u')", "'i'")
}

// Pages that fail fail the turn.
func TestPagesFail(t *testing.T) {
	m := newMemory()
	db := open(t, m, nil)
	query(t, db, "CREATE TABLE t (a); INSERT INTO t VALUES (1)")
	m.fail = agent.Exceeded(agent.LimitState, "full")
	if err := db.Finish(t.Context()); !errors.Is(err, m.fail) {
		t.Fatalf("Finish: %v", err)
	}
	refused(t, db, agent.Exhausted, agent.LimitState, "full", "SELECT 1")
	m.fail = nil
	m.undo()
	db.Undo()
	refused(t, db, agent.Invalid, 0, "no such table", "SELECT * FROM t")
	for n, page := range map[string][]byte{"short": make([]byte, 100), "strange": make([]byte, sqldb.PageSize)} {
		bad := newMemory()
		bad.turn[0] = page
		_, err := open(t, bad, nil).Query(t.Context(), abi.SQL{Query: "SELECT 1"})
		if agent.KindOf(err) != agent.Internal {
			t.Errorf("%s page: %v", n, err)
		}
	}
}
