package sqldb_test

import (
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/sqldb"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/instance/instancetest"
)

// SQL commits with an instance's turn, beside what else the turn changed, and is undone with it.
func TestInstance(t *testing.T) {
	const owner = agent.AgentID("01AGENT")
	store := instancetest.NewMemory(nil)
	store.AddAgent(agent.DefaultApp, owner)
	id := instance.ID{App: agent.DefaultApp, Agent: owner, Key: "hive"}
	bounds := agent.StateGrant{}.Or()
	keeper := durable.New(store, nil)
	turn := func(do func(*durable.Turn, *sqldb.DB), keep bool) {
		t.Helper()
		turn, err := keeper.Enter(t.Context(), id, durable.Entry{})
		if err != nil {
			t.Fatal(err)
		}
		db, ok := turn.Memo().(*sqldb.DB)
		if !ok {
			db = open(t, sqldb.StatePages(turn, bounds), nil)
			turn.SetMemo(db)
		}
		db.Begin(sqldb.StatePages(turn, bounds), nil, nil)
		do(turn, db)
		if !keep {
			db.Undo()
			turn.Abandon()
			return
		}
		finish(t, db)
		if err := turn.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	state := func(turn *durable.Turn, v string) {
		t.Helper()
		set := agent.StateEdit{Act: agent.StateSet, Key: "k", Value: agent.Payload{Type: agent.TypeText, Body: []byte(v)}}
		if _, err := turn.Edit(t.Context(), bounds, set); err != nil {
			t.Fatal(err)
		}
	}
	turn(func(turn *durable.Turn, db *sqldb.DB) {
		state(turn, "one")
		query(t, db, "CREATE TABLE bees (name, n); INSERT INTO bees VALUES ('maja', 1)")
	}, true)
	for range 3 { // in a warm instance, after an undone turn, and in another owner's process
		turn(func(turn *durable.Turn, db *sqldb.DB) {
			state(turn, "two")
			query(t, db, "UPDATE bees SET n = 2; DROP TABLE bees")
			finish(t, db) // as at an output gate whose commit then never comes
		}, false)
		turn(func(turn *durable.Turn, db *sqldb.DB) {
			want(t, db, "SELECT name, n FROM bees", "'maja',1")
			if got, err := turn.Get(t.Context(), "k"); err != nil || len(got) != 1 || string(got[0].Value.Body) != "one" {
				t.Errorf("state beside the database: %v, %v", got, err)
			}
		}, true)
		keeper = durable.New(store, nil)
	}
	// More than one commit holds.
	turn(func(_ *durable.Turn, db *sqldb.DB) {
		query(t, db, "INSERT INTO bees SELECT hex(randomblob(1000)), value FROM generate_series(1, 1500)")
	}, true)
	keeper = durable.New(store, nil)
	turn(func(_ *durable.Turn, db *sqldb.DB) {
		want(t, db, "SELECT count(*), total(n) FROM bees; PRAGMA integrity_check", "'ok'")
		want(t, db, "SELECT count(*) FROM bees", "1501")
	}, true)
}
