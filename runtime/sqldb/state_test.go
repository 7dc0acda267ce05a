package sqldb_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/sqldb"
)

// state is an instance's state in a map. It keeps what it was after each edit, as a crash may come between any two.
type state struct {
	t       testing.TB
	entries map[string][]byte
	edits   int
	past    []map[string][]byte // nil: not wanted
}

func newState(t testing.TB) *state { return &state{t: t, entries: map[string][]byte{}} }

func (s *state) Get(_ context.Context, keys ...string) (out []agent.StateEntry, err error) {
	if len(keys) > agent.MaxStateEdits {
		s.t.Errorf("%d keys are read at once", len(keys))
	}
	for _, key := range keys {
		if body, ok := s.entries[key]; ok {
			out = append(out, agent.StateEntry{Key: key, Value: agent.Payload{Type: agent.TypeBytes, Body: body}})
		}
	}
	return out, nil
}

func (s *state) Edit(_ context.Context, bounds agent.StateGrant, edits ...agent.StateEdit) (int64, error) {
	size := 0
	for _, e := range edits {
		size += 3*len(e.Key) + len(e.Value.Type) + len(e.Value.Body)
		if err := e.Check(); err != nil || !strings.HasPrefix(e.Key, sqldb.KeyPrefix) {
			s.t.Errorf("edit of %q: %v", e.Key, err)
		}
	}
	if len(edits) > agent.MaxStateEdits || size > agent.MaxStateEditsBytes {
		s.t.Errorf("%d edits of %d bytes at once", len(edits), size)
	}
	next := maps.Clone(s.entries)
	for _, e := range edits {
		if e.Act == agent.StateDelete {
			delete(next, e.Key)
		} else {
			next[e.Key] = slices.Clone(e.Value.Body)
		}
	}
	total := int64(0)
	for _, body := range next {
		total += int64(len(body))
	}
	if total > bounds.Bytes {
		return 0, agent.Exceeded(agent.LimitState, "the state is full")
	}
	s.entries = next
	s.edits++
	if s.past != nil {
		s.past = append(s.past, next)
	}
	return 1, nil
}

var wide = agent.StateGrant{Bytes: agent.MaxStateBytes, Keys: agent.MaxStateKeys}

// Random statements give what a plain database gives, whatever turns are undone, and however often the database is opened anew.
func TestLikePlain(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { likePlain(t, seed) })
	}
}

func likePlain(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	plain, err := sqlite3.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	s := newState(t)
	db := open(t, sqldb.StatePages(s, wide), &sqldb.Options{Cache: 40 << 10, Memory: 8 << 20})
	failed, undone := 0, 0
	for range 120 {
		if err := plain.Exec("BEGIN"); err != nil {
			t.Fatal(err)
		}
		before := s.entries
		db.Begin(sqldb.StatePages(s, wide), nil, nil)
		for range 1 + r.IntN(12) {
			sql := statement(r)
			want, wantErr := askPlain(plain, sql)
			rows, err := db.Query(t.Context(), abi.SQL{Query: sql})
			got := text(rows)
			if (err == nil) != (wantErr == nil) || got != want {
				t.Fatalf("%s\n got %.500s %v\nwant %.500s %v", sql, got, err, want, wantErr)
			}
			if err != nil {
				failed++
				if e := agent.AsError(err); e.Kind == agent.Internal || !strings.HasSuffix(strings.Split(wantErr.Error(), ", near")[0], lastPart(e.Msg)) {
					t.Fatalf("%s\n got %v\nwant %v", sql, err, wantErr)
				}
			}
		}
		end := "COMMIT"
		switch r.IntN(4) {
		case 0: // thrown before the end
			end = "ROLLBACK"
			db.Undo()
		case 1: // thrown after
			end = "ROLLBACK"
			finish(t, db)
			s.entries = before
			db.Undo()
		default:
			finish(t, db)
		}
		if err := plain.Exec(end); err != nil {
			t.Fatal(err)
		}
		if end == "ROLLBACK" {
			undone++
		}
		switch r.IntN(8) {
		case 0:
			db.Close()
			db = open(t, sqldb.StatePages(s, wide), nil)
		case 1:
			db.Invalidate()
		}
	}
	want(t, db, "PRAGMA integrity_check", "'ok'")
	if failed == 0 || undone == 0 {
		t.Errorf("%d statements failed, %d turns were undone", failed, undone)
	}
}

// lastPart is the library's words in an error.
func lastPart(msg string) string {
	msg, _, _ = strings.Cut(msg, ", near")
	return msg[strings.LastIndex(msg, ": ")+2:]
}

func askPlain(c *sqlite3.Conn, sql string) (string, error) {
	s, _, err := c.Prepare(sql)
	if err != nil {
		return "", err
	}
	defer s.Close()
	rows := abi.SQLRows{}
	for s.Step() {
		var row []abi.SQLValue
		for i := range s.ColumnCount() {
			switch s.ColumnType(i) {
			case sqlite3.INTEGER:
				row = append(row, params(s.ColumnInt64(i))...)
			case sqlite3.FLOAT:
				row = append(row, params(s.ColumnFloat(i))...)
			case sqlite3.TEXT:
				row = append(row, params(s.ColumnText(i))...)
			case sqlite3.BLOB:
				row = append(row, params(s.ColumnBlob(i, []byte{}))...)
			default:
				row = append(row, abi.SQLValue{})
			}
		}
		rows.Rows = append(rows.Rows, row)
	}
	if err := s.Err(); err != nil {
		return "", err
	}
	return text(rows), nil
}

func statement(r *rand.Rand) string {
	table := fmt.Sprintf("t%d", r.IntN(4))
	column := func() string { return []string{"a", "b", "c"}[r.IntN(3)] }
	val := func() string {
		switch r.IntN(6) {
		case 0:
			return "NULL"
		case 1:
			return fmt.Sprintf("'%s'", strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(300)))
		case 2:
			return fmt.Sprintf("x'%x'", strings.Repeat("z", r.IntN(6000)))
		case 3:
			return fmt.Sprint(r.Float64() * 100)
		}
		return fmt.Sprint(r.IntN(50))
	}
	switch r.IntN(20) {
	case 0, 1:
		return fmt.Sprintf("CREATE TABLE %s (id INTEGER PRIMARY KEY, a, b UNIQUE, c CHECK (c IS NOT 7))", table)
	case 2:
		return fmt.Sprintf("CREATE INDEX i%d ON %s (%s, %s)", r.IntN(6), table, column(), column())
	case 3:
		return []string{"DROP TABLE " + table, fmt.Sprintf("DROP INDEX i%d", r.IntN(6)), "ALTER TABLE " + table + " RENAME TO u", "ALTER TABLE u RENAME TO " + table}[r.IntN(4)]
	case 4:
		return fmt.Sprintf("DELETE FROM %s WHERE %s > %s", table, column(), val())
	case 5:
		return fmt.Sprintf("INSERT OR REPLACE INTO %s (a, b, c) SELECT %s, b, %s FROM t%d", table, column(), column(), r.IntN(4))
	case 6, 7:
		return fmt.Sprintf("UPDATE %s SET %s = %s WHERE id %% %d = 0 RETURNING id, a", table, column(), val(), 1+r.IntN(5))
	case 8:
		return fmt.Sprintf("SELECT count(*), total(id), min(a), max(length(b)) FROM %s", table)
	case 9, 10:
		return fmt.Sprintf("SELECT * FROM %s ORDER BY %s, id LIMIT 20", table, column())
	case 11:
		return fmt.Sprintf("SELECT x.id, y.id FROM %s x JOIN t%d y ON x.a = y.c ORDER BY 1, 2 LIMIT 30", table, r.IntN(4))
	}
	return fmt.Sprintf("INSERT INTO %s (a, b, c) VALUES (%s, %s, %s), (%s, %s, %s)", table, val(), val(), val(), val(), val(), val())
}

// A crash between any two edits, those of the recovery included, leaves all of a flush or nothing.
func TestCrash(t *testing.T) {
	s := newState(t)
	db := open(t, sqldb.StatePages(s, wide), nil)
	query(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b); WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n LIMIT 300) INSERT INTO t SELECT i, hex(randomblob(1000)) FROM n")
	finish(t, db)
	query(t, db, "CREATE INDEX i ON t (b); UPDATE t SET b = 'new' || b; DELETE FROM t WHERE a = 1")
	s.past = []map[string][]byte{s.entries}
	finish(t, db)
	if len(s.past) < 5 {
		t.Fatalf("a large flush took %d edits", len(s.past)-1)
	}
	for _, key := range slices.Collect(maps.Keys(s.entries)) {
		if strings.Contains(key, "redo") {
			t.Errorf("key %q was left", key)
		}
	}
	seen := map[string]int{}
	check := func(entries map[string][]byte) *state {
		after := newState(t)
		after.entries, after.past = entries, []map[string][]byte{entries}
		db := open(t, sqldb.StatePages(after, wide), nil)
		got := text(query(t, db, "SELECT count(*), sum(b LIKE 'new%') FROM t"))
		if got != "300,0" && got != "299,299" {
			t.Errorf("after a crash: %s", got)
		}
		seen[got]++
		want(t, db, "PRAGMA integrity_check", "'ok'")
		db.Close()
		return after
	}
	for i, entries := range s.past {
		after := check(entries)
		first := text(query(t, open(t, sqldb.StatePages(after, wide), nil), "SELECT count(*) FROM t"))
		for _, entries := range after.past[1:] {
			check(entries)
			if got := text(query(t, open(t, sqldb.StatePages(after, wide), nil), "SELECT count(*) FROM t")); got != first {
				t.Errorf("edit %d: %s before the second crash, %s after", i, first, got)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("states seen: %v", seen)
	}
}

// A flush that fits is one edit, and pages take no more room than what is in them.
func TestOneEdit(t *testing.T) {
	s := newState(t)
	db := open(t, sqldb.StatePages(s, wide), nil)
	query(t, db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
	for i := range 500 {
		query(t, db, "INSERT INTO t VALUES (?, ?)", i, "some text of a row")
	}
	finish(t, db)
	if s.edits != 1 {
		t.Errorf("%d edits", s.edits)
	}
	query(t, db, "UPDATE t SET b = 'x' WHERE a = 7")
	before := s.entries
	finish(t, db)
	changed := 0
	for key, body := range s.entries {
		if string(before[key]) != string(body) {
			changed++
		}
	}
	if s.edits != 2 || changed != 1 {
		t.Errorf("an update of one row: %d edits, %d pages", s.edits-1, changed)
	}
	finish(t, db)
	if s.edits != 2 {
		t.Error("a turn that changes nothing writes")
	}
	query(t, db, "DROP TABLE t; VACUUM; CREATE TABLE small (a); INSERT INTO small VALUES (1)")
	finish(t, db)
	size := 0
	for _, body := range s.entries {
		size += len(body)
	}
	if len(s.entries) != 2 || size > 1000 {
		t.Errorf("a small database has %d pages and %d bytes", len(s.entries), size)
	}
	want(t, open(t, sqldb.StatePages(s, wide), nil), "SELECT a FROM small", "1")
}

func TestStateIsFull(t *testing.T) {
	s := newState(t)
	bounds := agent.StateGrant{Bytes: 50_000, Keys: 1000}
	db := open(t, sqldb.StatePages(s, bounds), nil)
	query(t, db, "CREATE TABLE t (a)")
	finish(t, db)
	before := s.entries
	query(t, db, "INSERT INTO t VALUES (randomblob(100000))")
	if err := db.Finish(t.Context()); agent.KindOf(err) != agent.Exhausted {
		t.Fatalf("Finish: %v", err)
	}
	s.entries = before
	db.Undo()
	want(t, db, "SELECT count(*) FROM t", "0")
}

func TestDamagedPage(t *testing.T) {
	s := newState(t)
	db := open(t, sqldb.StatePages(s, wide), nil)
	query(t, db, "CREATE TABLE t (a); INSERT INTO t VALUES (1)")
	finish(t, db)
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		whole := s.entries[key]
		for _, body := range [][]byte{{}, whole[:len(whole)-1], append(slices.Clone(whole), 0), append([]byte{9}, whole[1:]...)} {
			s.entries[key] = body
			_, err := open(t, sqldb.StatePages(s, wide), nil).Query(t.Context(), abi.SQL{Query: "SELECT * FROM t"})
			if e := agent.AsError(err); e == nil || e.Kind != agent.Internal || !strings.Contains(e.Msg, "damaged") {
				t.Errorf("%q with %d bytes: %v", key, len(body), err)
			}
		}
		s.entries[key] = whole
	}
	s.entries[sqldb.KeyPrefix+"redo"] = []byte{3}
	if _, err := open(t, sqldb.StatePages(s, wide), nil).Query(t.Context(), abi.SQL{Query: "SELECT 1"}); agent.KindOf(err) != agent.Internal {
		t.Errorf("a strange redo record: %v", err)
	}
}
