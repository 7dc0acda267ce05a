import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent, NonRetryableError, schedule, sleep, step, storage, waitForEvent } from "./index.js";
import { FakeHost } from "./testing.js";

class Counter extends Agent {
  initialState = { n: 0 };
  validateStateChange(next, source) {
    if (next.n < 0) {
      throw new RangeError(`${source}: below zero`);
    }
  }
  onStateChanged(state, source) {
    this.emit("changed", { n: state.n, source });
  }
  async add(n) {
    await this.storage.set("last", n);
    this.setState({ n: this.state.n + n });
    await this.broadcast({ n: this.state.n });
    return this.state.n;
  }
  mutate() {
    this.state.n = 7;
  }
}

test("storage and state, and what a turn that throws undoes", async () => {
  const host = new FakeHost({ storage: { last: 0 } });
  const client = await host.connect(Counter, { tags: ["x"] });
  assert.equal(await host.call(Counter, "add", 2), 2);
  await assert.rejects(host.call(Counter, "add", -5), /server: below zero/);
  await assert.rejects(host.call(Counter, "mutate"), /read only|read-only/);
  assert.equal(await host.storage.get("last"), 2);
  assert.deepEqual(host.shared, { n: 2 });
  assert.deepEqual(client.frames, ['{"n":2}']);
  await client.setState({ n: 9 });
  await assert.rejects(client.setState({ n: -1 }), /c1: below zero/);
  assert.deepEqual(host.events.map((e) => e.data), [{ n: 2, source: "server" }, { n: 9, source: "c1" }]);
  assert.equal(await client.call("add", 1), 10);
  await assert.rejects(client.call("onStateChanged", {}), /no method/);
});

test("what a call did before it leaves its turn stays", async () => {
  class Slow extends Agent {
    async work(fails) {
      await this.storage.set("before", 1);
      const n = await this.outside(async () => 7);
      await this.storage.set("after", n);
      if (fails) throw new Error("late");
    }
  }
  const host = new FakeHost();
  await assert.rejects(host.call(Slow, "work", true), /late/);
  assert.deepEqual([await host.storage.get("before"), await host.storage.get("after")], [1, undefined]);
  await host.call(Slow, "work", false);
  assert.equal(await host.storage.get("after"), 7);
});

class Bot extends Agent {
  async onAlarm(payload) {
    await this.storage.set("rang", [...((await this.storage.get("rang")) ?? []), payload ?? null]);
  }
  async plan() {
    await this.schedule(60, "onAlarm", "once");
    await this.scheduleEvery(3600, "onAlarm", "hourly", { name: "hourly" });
    await this.schedule("0 9 * * *", "onAlarm", "daily", { name: "daily" });
    await this.setAlarm(this.now ?? 0);
    await assert.rejects(schedule(1, "missing"), /no method "missing"/);
    return (await this.listSchedules()).length;
  }
  async cancel() {
    return [await this.cancelSchedule("hourly"), await this.cancelSchedule("hourly"), (await this.getSchedule("daily")).cron];
  }
}

test("alarms ring as the clock moves", async () => {
  const host = new FakeHost();
  assert.equal(await host.call(Bot, "plan"), 4);
  await host.advance("2 hours");
  assert.deepEqual(await host.storage.get("rang"), [null, "once", "hourly", "hourly"]);
  assert.deepEqual(await host.call(Bot, "cancel"), [true, false, "0 9 * * *"]);
  await host.ring("daily");
  await host.advance("2 days");
  assert.deepEqual((await host.storage.get("rang")).slice(4), ["daily"]);
  assert.equal(host.now, Date.UTC(2026, 0, 3, 2));
});

class Orders extends Agent {
  async work({ fail } = {}) {
    let left = 2;
    const paid = await this.step("charge", { retries: { limit: 3, delay: "1 hour" } }, () => {
      if (left-- > 0) {
        throw new Error("later");
      }
      return "charged";
    }, { rollback: ({ output, error }) => this.emit("refund", `${output}: ${error.message}`) });
    await sleep("2 days");
    const { by } = await waitForEvent("approved", { timeout: "1 day" });
    await step("charge", () => 1);
    if (fail) {
      throw new NonRetryableError("no stock");
    }
    return [paid, by, this.key, this.runId];
  }
  async slow() {
    return this.step("slow", { timeout: "1 minute" }, () => new Promise(() => {}));
  }
  async parent() {
    const child = await this.run("work", {});
    return child.result();
  }
}

test("a run waits by the test's clock", async () => {
  const host = new FakeHost({ key: "o1" });
  const run = host.start(Orders, "work", {});
  await host.advance("4 hours");
  assert.deepEqual(host.steps.map((s) => s.error ?? "ok"), ["Error: later", "Error: later", "ok"]);
  await host.advance("2 days");
  await host.deliver("approved", { by: "ada" });
  assert.deepEqual(await run.result, ["charged", "ada", "o1", "run-1"]);
  assert.equal(host.steps.at(-1).name, "charge#2");
  const late = host.start(Orders, "work");
  await host.advance("9 days");
  await assert.rejects(late.result, { name: "TimeoutError", kind: "unavailable" });
  const slow = host.start(Orders, "slow");
  await host.advance("1 minute");
  await assert.rejects(slow.result, /step "slow" took longer than 60000 ms/);
});

test("a run that fails takes back what it did", async () => {
  const host = new FakeHost();
  await host.deliver("approved", { by: "bob" });
  const run = host.start(Orders, "work", { fail: true });
  await host.advance("3 days");
  await assert.rejects(run.result, /no stock/);
  assert.deepEqual(host.events, [{ name: "refund", data: "charged: no stock" }]);
  assert.deepEqual(host.steps.at(-1), { name: "charge", attempt: 1, rollback: true });
  const parent = host.start(Orders, "parent");
  await host.deliver("approved", { by: "eve" });
  await host.advance("3 days");
  assert.equal((await parent.result)[1], "eve");
});

test("sockets, other instances and SQL", async () => {
  class Room extends Agent {
    async onConnect(connection, { request }) {
      await connection.attach({ url: request.url });
      connection.send("hello");
    }
    async onSocketMessage(connection, data) {
      if (data === "bye") {
        return connection.close(4000, "enough");
      }
      await this.broadcast(data, { except: connection });
      await this.agent("log", "main", { send: true }).note(data);
      await this.child("c").start(data);
    }
    onClose(connection, code) {
      this.emit("closed", [connection.id, code]);
    }
    async rows(id) {
      return [await this.sql`SELECT * FROM t WHERE id = ${id}`, await this.storage.sql.raw("SELECT 1"), (await this.connections()).map((c) => c.id)];
    }
  }
  const asked = [];
  const host = new FakeHost({
    name: "room",
    agents: { room: (key) => ({ start: (data) => asked.push([key, data]) }) },
    sql: (query, params) => (asked.push([query, params]), [{ id: 1, text: "a" }]),
  });
  const a = await host.connect(Room, { url: "ws://x/a" });
  const b = await host.connect(Room);
  assert.deepEqual(a.attachment, { url: "ws://x/a" });
  await a.send("hi");
  assert.deepEqual([a.frames, b.frames], [["hello"], ["hello", "hi"]]);
  assert.deepEqual(host.sent, [{ agent: "log", key: "main", method: "note", input: "hi" }]);
  assert.deepEqual(await host.call(Room, "rows", true), [[{ id: 1, text: "a" }], { columns: ["id", "text"], rows: [[1, "a"]], changes: 0 }, ["c1", "c2"]]);
  assert.deepEqual(asked, [["c", "hi"], ["SELECT * FROM t WHERE id = ?", [1]], ["SELECT 1", []]]);
  await b.send("bye");
  assert.deepEqual(b.closed, { code: 4000, reason: "enough" });
  await a.close(1001);
  assert.deepEqual(host.events, [{ name: "closed", data: ["c1", 1001] }]);
  assert.throws(() => storage.get("x"), /inside Skep only/);
});
