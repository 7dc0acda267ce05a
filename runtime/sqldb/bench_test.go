package sqldb_test

import (
	"testing"

	"github.com/skep-dev/skep/runtime/sqldb"
)

func BenchmarkOpenAndFirstQuery(b *testing.B) {
	s := newState(b)
	db := open(b, sqldb.StatePages(s, wide), nil)
	query(b, db, "CREATE TABLE t (k PRIMARY KEY, v); INSERT INTO t VALUES ('a', 1)")
	finish(b, db)
	memory := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		db := open(b, sqldb.StatePages(s, wide), nil)
		query(b, db, "SELECT v FROM t WHERE k = ?", "a")
		memory = db.Memory()
		db.Close()
	}
	b.ReportMetric(float64(memory), "memory-B")
}

// One turn of a warm instance.
func BenchmarkSelectAndUpsert(b *testing.B) {
	s := newState(b)
	db := open(b, sqldb.StatePages(s, wide), nil)
	query(b, db, "CREATE TABLE t (k PRIMARY KEY, v) WITHOUT ROWID")
	query(b, db, "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n LIMIT 1000) INSERT INTO t SELECT 'key' || i, i FROM n")
	finish(b, db)
	b.ReportAllocs()
	for b.Loop() {
		db.Begin(nil, nil, nil)
		query(b, db, "SELECT v FROM t WHERE k = ?", "key500")
		query(b, db, "INSERT INTO t VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = v + 1", "key500", 1)
		finish(b, db)
	}
	b.ReportMetric(float64(db.Memory()), "memory-B")
}

func BenchmarkThousandInserts(b *testing.B) {
	s := newState(b)
	db := open(b, sqldb.StatePages(s, wide), nil)
	query(b, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
	finish(b, db)
	for b.Loop() {
		db.Begin(nil, nil, nil)
		for i := range 1000 {
			query(b, db, "INSERT OR REPLACE INTO t VALUES (?, ?)", i, "hello world hello")
		}
		finish(b, db)
	}
}

func BenchmarkUndo(b *testing.B) {
	s := newState(b)
	db := open(b, sqldb.StatePages(s, wide), nil)
	query(b, db, "CREATE TABLE t (k PRIMARY KEY, v); INSERT INTO t VALUES ('a', 1)")
	finish(b, db)
	for b.Loop() {
		db.Begin(nil, nil, nil)
		query(b, db, "UPDATE t SET v = v + 1")
		db.Undo()
	}
}
