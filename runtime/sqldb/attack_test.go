package sqldb_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/sqldb"
)

func TestNotAllowed(t *testing.T) {
	db := open(t, newMemory(), nil)
	query(t, db, "CREATE TABLE t (a); CREATE VIEW v AS SELECT 1 AS x; CREATE VIRTUAL TABLE f USING fts5(a)")
	query(t, db, "SELECT * FROM v")
	for _, sql := range []string{
		"ATTACH '/etc/passwd' AS x", "ATTACH '' AS x", "ATTACH ':memory:' AS x", "ATTACH 'file:db?vfs=os' AS x", "DETACH main", "VACUUM INTO '/tmp/skep-stolen'", "VACUUM INTO 'file:x?vfs=os'",
		"SELECT load_extension('x')", "SELECT eval('ATTACH '''' AS x')", "SELECT decimal_mul('9', '9')", "SELECT json_patch('{}', '{}')", "SELECT uuid()", "SELECT fts5(1)",
		"CREATE TEMP TABLE x (a)", "CREATE TEMP VIEW x AS SELECT 1", "CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END",
		"CREATE VIRTUAL TABLE x USING csv(filename='/etc/passwd')", "CREATE VIRTUAL TABLE x USING generate_series",
		"PRAGMA writable_schema=ON", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA locking_mode=NORMAL", "PRAGMA temp_store_directory='/tmp'", "PRAGMA mmap_size=1000000", "PRAGMA hard_heap_limit=0",
		"PRAGMA soft_heap_limit=0", "PRAGMA cache_size=100000", "PRAGMA cache_spill=ON", "PRAGMA page_size=512", "PRAGMA max_page_count=1000000", "PRAGMA trusted_schema=ON", "PRAGMA wal_checkpoint", "PRAGMA module_list",
		"PRAGMA temp_store=FILE", "PRAGMA schema_version=9", "PRAGMA database_list", "PRAGMA case_sensitive_like=ON", "SELECT * FROM pragma_database_list", "PRAGMA vfs_list", "PRAGMA threads=8", "PRAGMA auto_vacuum=1", "PRAGMA encoding='UTF-16'",
	} {
		_, err := db.Query(t.Context(), abi.SQL{Query: sql})
		e := agent.AsError(err)
		switch {
		case e == nil:
			t.Errorf("%s was allowed", sql)
		case e.Kind == agent.Denied && len(e.Msg) > 20:
		case e.Kind == agent.Invalid && (strings.Contains(e.Msg, "no such") || strings.Contains(e.Msg, "not authorized")):
		default:
			t.Errorf("%s: %v (%s)", sql, err, e.Kind)
		}
	}
	for _, sql := range []string{"UPDATE sqlite_schema SET sql = 'x'", "INSERT INTO sqlite_schema VALUES (1,2,3,4,5)", "UPDATE f_data SET block = x'00'", "DROP TABLE f_data", "DELETE FROM f_content"} {
		if _, err := db.Query(t.Context(), abi.SQL{Query: sql}); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// A statement that was allowed is not when what it names has become something else.
	query(t, db, "DROP VIEW v; CREATE VIEW v AS SELECT decimal_mul(2, 2) AS x")
	refused(t, db, agent.Denied, 0, "decimal_mul", "SELECT * FROM v")
	want(t, db, "SELECT count(*) FROM t", "0")
}

// A statement ends soon after its context, whatever it does.
func TestStopped(t *testing.T) {
	big := "(SELECT hex(zeroblob(500000)))"
	for name, sql := range map[string]string{
		"endless recursion":   "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n",
		"a product of series": "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b WHERE a.value * b.value = -1",
		"a long write":        "INSERT INTO t SELECT a.value FROM generate_series(1, 100000) a, generate_series(1, 100000) b WHERE a.value * b.value = -1",
		"instr":               fmt.Sprintf("SELECT sum(instr(x, substr(x, 1, 499999) || 'a')) FROM (SELECT %s AS x), generate_series(1, 100000000)", big),
		"replace":             fmt.Sprintf("SELECT sum(length(replace(x, substr(x, 1, 499999) || 'a', ''))) FROM (SELECT %s AS x), generate_series(1, 100000000)", big),
		"trim":                fmt.Sprintf("SELECT sum(length(trim('b' || x, x || 'b'))) FROM (SELECT %s AS x), generate_series(1, 100000000)", big),
		"unhex":               "SELECT sum(length(unhex(x, x))) FROM (SELECT replace(hex(zeroblob(250000)), '0', '-') AS x), generate_series(1, 100000000)",
		"like":                fmt.Sprintf("SELECT sum(x LIKE '%s') FROM (SELECT %s AS x), generate_series(1, 100000000)", strings.Repeat("%0", 48)+"1", big),
		"glob":                fmt.Sprintf("SELECT sum(x GLOB '%s') FROM (SELECT %s AS x), generate_series(1, 100000000)", strings.Repeat("*0", 48)+"1", big),
		"dates":               "SELECT sum(unixepoch(value, 'unixepoch', '+1 month')) FROM generate_series(1, 1000000000)",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			db := open(t, m, nil)
			query(t, db, "CREATE TABLE t (a)")
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begin := time.Now()
			_, err := db.Query(ctx, abi.SQL{Query: sql})
			if e := agent.AsError(err); e == nil || e.Kind != agent.Exhausted || e.Limit != agent.LimitWall {
				t.Errorf("%v", err)
			}
			if d := time.Since(begin); d > 5*time.Second {
				t.Errorf("stopped after %s", d)
			} else {
				t.Log(d)
			}
			want(t, db, "SELECT count(*) FROM t", "0")
		})
	}
	db := open(t, newMemory(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Query(ctx, abi.SQL{Query: "SELECT 1"}); agent.KindOf(err) != agent.Cancelled {
		t.Error(err)
	}
}

// What is too large is refused by name, and the database goes on with what it had.
func TestBounds(t *testing.T) {
	nested := strings.Repeat("(SELECT ", 300) + "1" + strings.Repeat(")", 300)
	views := "CREATE VIEW v0 AS SELECT 1 AS x LIMIT 1;"
	for i := range 40 {
		views += fmt.Sprintf("CREATE VIEW v%d AS SELECT a.x FROM v%d a, v%d b LIMIT 1;", i+1, i, i)
	}
	views += "CREATE VIEW w0 AS SELECT 1 AS x;"
	for i := range 300 {
		views += fmt.Sprintf("CREATE VIEW w%d AS SELECT x + 1 AS x FROM w%d LIMIT 5;", i+1, i)
	}
	series := "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n LIMIT %d) "
	const memory = 8 << 20
	for _, tt := range []struct {
		name, sql, part string
		kind            agent.Kind
		limit           agent.Limit
	}{
		{"randomblob", "SELECT randomblob(1000000000)", "", agent.Exhausted, agent.LimitOutput},
		{"zeroblob", "SELECT zeroblob(1000000000)", "", agent.Exhausted, agent.LimitOutput},
		{"printf", "SELECT printf('%.*c', 1000000000, 'x')", "", agent.Exhausted, agent.LimitOutput},
		{"printf precision", "SELECT printf('%.*f', 1000000000, 1.0)", "", agent.Exhausted, agent.LimitOutput},
		{"group_concat", fmt.Sprintf(series, 100000) + "SELECT group_concat(printf('%1000d', i)) FROM n", "", agent.Exhausted, agent.LimitOutput},
		{"replace", "SELECT replace(hex(zeroblob(100000)), '0', hex(zeroblob(100000)))", "", agent.Exhausted, agent.LimitOutput},
		{"json_group_array", fmt.Sprintf(series, 100000) + "SELECT json_group_array(printf('%1000d', i)) FROM n", "", agent.Exhausted, agent.LimitMemory},
		{"sort", fmt.Sprintf(series, 100000) + "SELECT max(x) FROM (SELECT printf('%1000d', i) AS x FROM n ORDER BY x DESC LIMIT 100000)", "memory", agent.Exhausted, agent.LimitMemory},
		{"distinct", fmt.Sprintf(series, 1000000) + "SELECT count(DISTINCT printf('%100d', i)) FROM n", "memory", agent.Exhausted, agent.LimitMemory},
		{"views", "SELECT * FROM v40", "", agent.Exhausted, agent.LimitMemory},
		{"a chain of views", "SELECT * FROM w300", "nested too deep", agent.Exhausted, agent.LimitStack},
		{"rows", fmt.Sprintf(series, 10001) + "SELECT i FROM n", "more than 10000 rows", agent.Exhausted, agent.LimitOutput},
		{"bytes", fmt.Sprintf(series, 100) + "SELECT zeroblob(100000) FROM n", "more than 8388608 bytes", agent.Exhausted, agent.LimitOutput},
		{"many values", fmt.Sprintf(series, 9000) + "SELECT " + strings.Repeat("i,", 80) + "i FROM n", "more than 8388608 bytes", agent.Exhausted, agent.LimitOutput},
		{"long", "SELECT '" + strings.Repeat("x", sqldb.MaxQuery) + "'", "bytes, more than", agent.Exhausted, agent.LimitInput},
		{"deep", "SELECT " + nested, "", agent.Invalid, 0},
		{"deep expression", "SELECT " + strings.Repeat("1+", 1000) + "1", "", agent.Invalid, 0},
		{"parentheses", "SELECT " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000), "", agent.Invalid, 0},
		{"columns", "SELECT " + strings.Repeat("1,", sqldb.MaxColumns) + "1", "too many columns", agent.Invalid, 0},
		{"variable", "SELECT ?5000", "", agent.Invalid, 0},
		{"compound", "SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 500), "", agent.Invalid, 0},
		{"pattern", "SELECT 'a' LIKE '" + strings.Repeat("%a", 1000) + "'", "", agent.Invalid, 0},
		{"size", fmt.Sprintf(series, 1000) + "INSERT INTO t SELECT zeroblob(5000) FROM n", "grow past", agent.Exhausted, agent.LimitState},
		{"returning", fmt.Sprintf(series, 10001) + "INSERT INTO t SELECT i FROM n RETURNING a", "more than 10000 rows", agent.Exhausted, agent.LimitOutput},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db := open(t, newMemory(), &sqldb.Options{Memory: memory, Bytes: 1 << 20})
			query(t, db, "CREATE TABLE t (a); INSERT INTO t VALUES ('kept'); "+views)
			begin := time.Now()
			refused(t, db, tt.kind, tt.limit, tt.part, tt.sql)
			if d := time.Since(begin); d > 10*time.Second {
				t.Errorf("refused after %s", d)
			} else {
				t.Log(d)
			}
			want(t, db, "SELECT a FROM t", "'kept'")
			if n := db.Memory(); n > memory {
				t.Errorf("%d bytes of memory", n)
			}
			finish(t, db)
		})
	}
	db := open(t, newMemory(), nil)
	refused(t, db, agent.Exhausted, agent.LimitInput, "parameter 1", "SELECT ?", strings.Repeat("x", sqldb.MaxValue+1))
	refused(t, db, agent.Exhausted, agent.LimitInput, "1001 parameters", "SELECT 1", make([]any, 1001)...)
}

// A statement that breaks the library's connection takes back its own call, and no more of the turn.
func TestOutOfMemoryKeepsTheTurn(t *testing.T) {
	m := newMemory()
	db := open(t, m, &sqldb.Options{Memory: 8 << 20, Cache: 40 << 10})
	query(t, db, "CREATE TABLE t (a); INSERT INTO t VALUES (1)")
	finish(t, db)
	m.commit()
	db.Begin(m, nil, nil)
	query(t, db, "INSERT INTO t VALUES (2)")
	bomb := "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n LIMIT 100000) SELECT count(*) FROM (SELECT printf('%1000d', i) AS x FROM n ORDER BY x LIMIT 100000)"
	refused(t, db, agent.Exhausted, agent.LimitMemory, "memory", "INSERT INTO t VALUES (3); "+bomb)
	want(t, db, "SELECT a FROM t", "1;2")
	// A transaction that is larger than the cache is lost as a whole.
	query(t, db, "CREATE TABLE u AS SELECT zeroblob(3000) AS b FROM generate_series(1, 100)")
	query(t, db, "BEGIN; UPDATE u SET b = randomblob(3000)")
	refused(t, db, agent.Exhausted, agent.LimitMemory, "rolled back", bomb)
	want(t, db, "SELECT a FROM t", "1;2")
	want(t, db, "SELECT count(*), sum(b = zeroblob(3000)) FROM u", "100,100")
	finish(t, db)
	m.commit()
	want(t, open(t, m, nil), "SELECT a FROM t; PRAGMA integrity_check", "'ok'")
}

// Connections that broke give their memory back.
func TestNothingLeaks(t *testing.T) {
	mapped := func() (total int64) {
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Skip(err)
		}
		if _, err := fmt.Sscan(string(b), &total); err != nil {
			t.Fatal(err)
		}
		return total * int64(os.Getpagesize())
	}
	const memory = 32 << 20
	db := open(t, newMemory(), &sqldb.Options{Memory: memory})
	chain := "CREATE VIEW w0 AS SELECT 1 AS x;"
	for i := range 300 {
		chain += fmt.Sprintf("CREATE VIEW w%d AS SELECT x + 1 AS x FROM w%d LIMIT 5;", i+1, i)
	}
	query(t, db, chain)
	finish(t, db)
	before := mapped()
	for range 40 {
		refused(t, db, agent.Exhausted, agent.LimitStack, "", "SELECT * FROM w300")
		want(t, db, "SELECT date('2020-01-01')", "'2020-01-01'")
		refused(t, db, agent.Exhausted, agent.LimitMemory, "", "SELECT count(DISTINCT randomblob(10000)) FROM generate_series(1, 100000)")
		db.Invalidate()
	}
	if n := mapped() - before; n > 10*memory {
		t.Errorf("%d bytes are mapped after 80 connections that broke", n)
	}
}
