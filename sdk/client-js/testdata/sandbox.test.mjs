import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as rest } from "node:timers/promises";
import { Client, Sandbox, SkepError } from "../index.js";

const { SKEP_URL: url, SKEP_TOKEN: token, SKEP_IMAGE: image } = process.env;
const limit = { timeout: 60_000 };
const skep = new Client({ url, token });
const kind = (k, text = "") => (e) => e instanceof SkepError && e.kind === k && e.message.includes(text);

let box;
before(async () => {
  const env = await skep.environments.put({ name: "work", image, variables: { GREETING: "hello" } });
  assert.equal(env.revision, 1);
  for (const [name, keep] of [["cattle", undefined], ["pet", "pet"]]) await skep.agents.create({ name, plugin: "code", sandbox: { environment: "work", keep } });
  box = skep.sandbox(await skep.sandboxes.open("cattle"));
}, limit);
after(() => box?.delete(), limit);

// until waits for what the server tells nobody.
async function until(ok) {
  while (!await ok()) await rest(5);
}

const ended = (id) => async () => (await box.processes()).some((p) => p.id === id && p.ended);

test("environments", limit, async () => {
  const env = await skep.environments.get("work");
  assert.equal((await skep.environments.put({ ...env, description: "where work is done" })).revision, 2);
  assert.deepEqual((await skep.environments.revisions("work")).items.map((e) => e.revision), [1, 2]);
  assert.equal((await skep.environments.get("work@1")).description, undefined);
  await skep.environments.put({ name: "unused", image });
  assert.deepEqual((await skep.environments.list()).items.map((e) => e.name), ["unused", "work"]);
  await skep.environments.delete("unused");
  await assert.rejects(skep.environments.get("unused"), kind("not_found"));
});

test("records", limit, async () => {
  const [docker] = await skep.sandboxes.providers();
  assert.equal(docker.ready, true);
  const sb = await box.get();
  assert.deepEqual([sb.agent, sb.state], ["cattle", "ready"]);
  assert.deepEqual(await skep.sandboxes.get(box.id), sb);
  assert.deepEqual((await skep.sandboxes.list({ agent: "cattle" })).items.map((x) => x.id), [box.id]);
  await assert.rejects(skep.sandboxes.open("nobody"), kind("not_found"));
  await assert.rejects(skep.sandbox("none").exec("true"), kind("not_found"));
});

test("exec", limit, async () => {
  const x = await box.exec("echo $GREETING $NAME; echo oops >&2; exit 3", { env: { NAME: "Ada" } });
  assert.deepEqual([x.stdout, x.stderr, x.code], ["hello Ada\n", "oops\n", 3]);
  assert.equal((await box.exec(["wc", "-c"], { stdin: "12345" })).stdout.trim(), "5");
  assert.equal((await box.exec(["pwd"], { dir: "/tmp" })).stdout, "/tmp\n");
  assert.equal((await box.exec("sleep 1000", { timeout: 50 })).timed_out, true);
  const long = await box.exec("seq 1000", { output: 10 });
  assert.deepEqual([long.stdout.length <= 10, long.dropped > 0], [true, true]);
  await assert.rejects(box.exec(["true"], { dir: "/none" }), kind("not_found", "there is no folder /none"));
});

test("exec that is given up", limit, async () => {
  const stop = new AbortController();
  const was = new Set((await box.processes()).map((p) => p.id));
  const done = box.exec("sleep 1001", { signal: stop.signal });
  done.catch(() => {});
  let id;
  await until(async () => (id = (await box.processes()).find((p) => !was.has(p.id))?.id));
  stop.abort();
  await assert.rejects(done, kind("cancelled"));
  await until(ended(id));
});

test("stream", limit, async () => {
  const seen = { stdout: "", stderr: "", ids: 0 };
  let exit;
  for await (const out of box.stream("echo one; sleep 0.1; echo é >&2; exit 4")) { // with heartbeats between
    seen.stdout += out.stdout ?? "";
    seen.stderr += out.stderr ?? "";
    if (out.id) seen.ids++;
    exit = out.exit ?? exit;
  }
  assert.deepEqual([seen, exit.code], [{ stdout: "one\n", stderr: "é\n", ids: 1 }, 4]);
  await assert.rejects(async () => {
    for await (const _ of box.stream(["no-such-program", "-x"])); // eslint-disable-line no-unused-vars
  }, kind("not_found", "no-such-program"));
});

test("text that is cut anywhere is whole", limit, async () => {
  let text = "";
  for await (const out of box.stream("yes 'aéあ🐝' | head -n 20000")) text += out.stdout ?? "";
  assert.ok(text === "aéあ🐝\n".repeat(20000), `${text.length} characters, ${text.split("\ufffd").length - 1} of them replaced`);
});

test("a stream that nobody reads on ends its program", limit, async () => {
  let id;
  for await (const out of box.stream("sleep 1002")) {
    id = out.id;
    break;
  }
  await until(ended(id));

  const stop = new AbortController();
  await assert.rejects(async () => {
    for await (const out of box.stream("sleep 1003", { signal: stop.signal })) {
      id = out.id;
      stop.abort();
    }
  }, kind("cancelled"));
  await until(ended(id));
});

test("background", limit, async () => {
  const { id, pid } = await box.start(["sleep", "1004"]);
  assert.ok(pid > 0);
  const p = (await box.processes()).find((x) => x.id === id);
  assert.deepEqual([p.command, p.ended ?? false], [["sleep", "1004"], false]);
  await box.signal(id, "KILL");
  await until(ended(id));
  await assert.rejects(box.signal("none"), kind("not_found"));
});

test("files", limit, async () => {
  const bytes = Uint8Array.from({ length: 70_000 }, (_, i) => (i * 7) % 256);
  const f = await box.files.write("deep/er/a b?.bin", bytes, { mode: 0o600 });
  assert.deepEqual([f.size, f.mode & 0o777], [70_000, 0o600]);
  assert.deepEqual(await box.files.read("deep/er/a b?.bin"), bytes);
  await box.files.write("text", "grüße");
  assert.equal(await box.files.text("text"), "grüße");
  let size = 0;
  for await (const part of await box.files.open("deep/er/a b?.bin")) size += part.length;
  assert.equal(size, 70_000);
  await box.files.write("/tmp/x", new Blob(["blob"]));
  assert.equal((await box.exec(["cat", "/tmp/x"])).stdout, "blob");
  assert.deepEqual((await box.files.list("deep", { recursive: true })).files.map((x) => x.type), ["dir", "file"]);
  assert.ok((await box.files.list()).files.some((x) => x.path.endsWith("text")));

  const tar = await box.backup({ dir: "deep" });
  await assert.rejects(box.files.delete("deep"));
  await box.files.delete("deep", { recursive: true });
  await assert.rejects(box.files.read("deep/er/a b?.bin"), kind("not_found"));
  await box.restore(tar, { dir: "back" });
  assert.deepEqual(await box.files.read("back/er/a b?.bin"), bytes);

  for (const dots of [".", ".."]) await assert.rejects(box.files.read(dots), SkepError);
  await assert.rejects(box.files.delete(".."), SkepError);
  assert.equal((await box.get()).state, "ready", "the sandbox is no file");
});

test("git", limit, async () => {
  await assert.rejects(box.clone("git@example.com:x/y.git"), kind("invalid"));
  const other = skep.sandbox(await skep.sandboxes.open("cattle"));
  try {
    await box.files.write("repo/a.txt", "one\n");
    const repo = await other.putRepo(await box.backup({ dir: "repo" }));
    assert.equal(repo.files, 1);
    await other.exec("echo two >> a.txt; echo new > b.txt");
    const { changed } = await other.changes();
    assert.deepEqual(changed.map((c) => [c.path, c.op, c.added]), [["a.txt", "change", 1], ["b.txt", "add", 1]]);
    assert.match(await other.diff({ base: repo.commit }), /^\+two$/m);
    await assert.rejects(other.diff({ base: "none" }), SkepError);
  } finally {
    await other.delete();
  }
});

test("ports", limit, async () => {
  const link = await box.link(8000, { lasts: 60_000 });
  const left = new Date(link.expires) - Date.now();
  assert.ok(left > 0 && left <= 60_000, link.expires);
  const res = await fetch(link.url);
  assert.match(await res.text(), /nothing listens at port 8000/);
  await assert.rejects(box.link(99_999), kind("invalid"));
});

test("pets", limit, async () => {
  const pet = skep.sandbox(await skep.sandboxes.open("pet"));
  assert.equal((await skep.sandboxes.open("pet")).id, pet.id);
  await assert.rejects(pet.checkpoint(), kind("not_found"));
  await pet.files.write("memory/note", "kept");
  await pet.files.write("other", "gone");
  const anew = await pet.recreate();
  assert.equal(anew.generation, 2);
  assert.equal(await pet.files.text("memory/note"), "kept");
  await assert.rejects(pet.files.text("other"), kind("not_found"));
  const saved = (await pet.checkpoint()).files.find((f) => f.path === "memory/note");
  assert.equal(saved.size, 4);
  assert.equal((await pet.hibernate()).state, "stopped");
  assert.equal((await pet.exec("cat memory/note")).stdout, "kept");
  await pet.reset();
  assert.equal((await pet.exec("ls memory 2>/dev/null | wc -l")).stdout.trim(), "0");
  await pet.delete();
  await assert.rejects(pet.exec("true"), SkepError);
});

test("by its id alone", limit, async () => {
  assert.ok(skep.sandbox(box.id) instanceof Sandbox);
  assert.equal((await skep.sandbox(box.id).exec("echo $GREETING")).stdout, "hello\n");
});
