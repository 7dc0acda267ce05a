package runtime_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
)

const turningScript = `
import { Agent, outside } from "skep";
export default class extends Agent {
	later() {}
	fails() { throw new Error("no"); }
	async names() {
		for (const name of ["a", "a/1", "aa", "d/1", "d/", "ä€", "z"]) await this.schedule(3600, "later", name, { name });
		const out = [];
		for (const name of ["a/1", "d/1", "d/", "ä€", "a", "z", "", "b", "a/"]) out.push((await this.getSchedule(name))?.payload ?? null);
		return out;
	}
	async fill(n) {
		await this.sql("CREATE TABLE IF NOT EXISTS t (who, n)");
		await this.sql("INSERT INTO t VALUES ('a', 0), ('b', 0)");
	}
	async race(who) {
		let made = 0;
		for (let i = 0; i < 20; i++) {
			const out = outside(() => {});
			await this.sql("UPDATE t SET n = n + 1 WHERE who = ?", who).then(() => made++, () => {});
			await out;
		}
		return made;
	}
	async sum() { return await this.sql("SELECT who, n FROM t ORDER BY who"); }
}
`

// An alarm is found by its name, whatever that begins with.
func TestRealScheduleNames(t *testing.T) {
	r := newRealRig(t, turningScript)
	r.agent(agent.Agent{Name: "a"})
	if got, want := r.mustCall("k", "names", ""), `["a/1","d/1","d/","ä€","a","z",null,null,null]`; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

// Statements that are made while calls leave and enter their turns never run in another call's turn, nor race.
func TestRealStatementsBesideLeaving(t *testing.T) {
	r := newRealRig(t, turningScript)
	r.agent(agent.Agent{Name: "a"})
	r.mustCall("k", "fill", "")
	var all sync.WaitGroup
	made := [2]string{}
	for i, who := range []string{"a", "b"} {
		all.Go(func() {
			var err error
			if made[i], err = r.callInstance("k", "race", who); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want := fmt.Sprintf(`[{"who":"a","n":%s},{"who":"b","n":%s}]`, made[0], made[1])
	if got := r.mustCall("k", "sum", ""); got != want {
		t.Errorf("in the table %s, answered %s", got, want)
	}
}
