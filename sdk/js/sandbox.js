// What `sandbox` is: the same in a cell, into which the prelude takes this file, and in a test. makeSandbox gets query(what, name, make, read), which makes the
// call of that name whose body make writes, and permit(tool, args, id), which calls the tool that stands for what a CLI asks to be allowed.

const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);

function text(what, name, v) {
  if (typeof v !== "string" || v === "") throw new TypeError(`${what}: ${name} is a text`);
  return v;
}

function texts(what, name, v) {
  if (!Array.isArray(v) || v.some((x) => typeof x !== "string")) throw new TypeError(`${what}: ${name} is an array of texts`);
  return v;
}

function options(what, v = {}) {
  if (!isObject(v)) throw new TypeError(`${what}: the options are an object`);
  return v;
}

// bytesOf writes what a file or a program is given in base64: text, bytes, or what has a JSON form.
function bytesOf(what, data) {
  if (data === undefined || typeof data === "function" || typeof data === "symbol") throw new TypeError(`${what}: give text, bytes, or what has a JSON form`);
  let bytes = data;
  if (data instanceof ArrayBuffer) bytes = new Uint8Array(data);
  else if (ArrayBuffer.isView(data)) bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  else bytes = new TextEncoder().encode(typeof data === "string" ? data : JSON.stringify(data));
  if (typeof bytes.toBase64 === "function") return bytes.toBase64();
  let binary = "";
  for (const b of bytes) binary += String.fromCharCode(b);
  return btoa(binary);
}

function fromBase64(text = "") {
  if (typeof Uint8Array.fromBase64 === "function") return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

// pathOf returns the path of a file of the session, or that of a handle.
const pathOf = (what, file) => text(what, "a file of the session", isObject(file) ? (file.artifact ?? file.path) : file);

const forms = ["text", "bytes", "json"];
const readAll = async (read, offset, length) => {
  const parts = [];
  for (let left = length; left > 0; ) {
    const { body, more } = await read(offset, left);
    parts.push(body);
    offset += body.length;
    left -= body.length;
    if (!more || body.length === 0) break;
  }
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
};

const counts = (u) => u && { input: u.input ?? 0, cacheRead: u.cache_read ?? 0, cacheWrite: u.cache_write ?? 0, output: u.output ?? 0, reasoning: u.reasoning ?? 0 };
const dated = (at) => new Date(at);

// answerText is what a CLI is told a person has answered: a text as it is, anything else as JSON.
const answerText = (v) => (typeof v === "string" ? v : JSON.stringify(v ?? null));

export function makeSandbox(query, permit) {
  const ask = (what, name, body, read) => query(what, name, () => JSON.stringify(typeof body === "function" ? body() : body), read);

  // Box is an open sandbox.
  class Box {
    constructor(b) {
      this.id = b.id;
      this.environment = b.environment;
      this.provider = b.provider;
      this.keep = b.keep;
      this.generation = b.generation;
      this.kept = b.kept;
      this.cli = b.cli;
      this.workspace = b.workspace;
      Object.freeze(this);
    }

    exec(command, o) {
      return ask("sandbox.exec", "sandbox.exec", () => {
        const { dir, env, stdin, timeout, background, show } = options("sandbox.exec", o);
        const words = typeof command === "string" ? [text("sandbox.exec", "the command", command)] : texts("sandbox.exec", "the command", command);
        if (words.length === 0) throw new TypeError("sandbox.exec: the command is a line for sh, or an array of words");
        return { command: words, dir, env, timeout, background, show, stdin: stdin === undefined ? undefined : bytesOf("sandbox.exec: stdin", stdin) };
      }, (r) => ({ ...r, stdout: r.stdout ?? "", stderr: r.stderr ?? "" }));
    }

    async read(path, { as = "text", offset = 0, length = Infinity } = {}) {
      if (!forms.includes(as)) throw new TypeError('sandbox.read: as is "text", "bytes" or "json"');
      text("sandbox.read", "the path", path);
      const bytes = await readAll(
        (from, most) => ask("sandbox.read", "sandbox.read", { path, offset: from || undefined, length: most === Infinity ? undefined : most }, (p) => ({ body: fromBase64(p.body), more: p.more })),
        offset, length,
      );
      if (as === "bytes") return bytes;
      const whole = new TextDecoder().decode(bytes);
      return as === "json" ? JSON.parse(whole) : whole;
    }

    write(path, data, o) {
      return ask("sandbox.write", "sandbox.write", () => ({ path: text("sandbox.write", "the path", path), body: bytesOf("sandbox.write", data), mode: options("sandbox.write", o).mode }), fileOf);
    }

    list(path, o) {
      return ask("sandbox.list", "sandbox.list", () => ({ path, recursive: options("sandbox.list", o).recursive }), (r) => Object.defineProperty((r.files ?? []).map(fileOf), "more", { value: r.more === true }));
    }

    delete(path, o) {
      return ask("sandbox.delete", "sandbox.delete", () => ({ path: text("sandbox.delete", "the path", path), recursive: options("sandbox.delete", o).recursive }), () => undefined);
    }

    attach(files) {
      return ask("sandbox.attach", "sandbox.attach", () => ({ files: [files].flat().map((f) => pathOf("sandbox.attach", f)) }), (r) => ({ paths: r.paths ?? [], images: r.images ?? [] }));
    }

    repo(from) {
      return ask("sandbox.repo", "sandbox.repo", () => {
        if (typeof from === "string") return { url: from };
        const { url, ref, depth, file } = options("sandbox.repo", from);
        return { url, ref, depth, file: file === undefined ? undefined : pathOf("sandbox.repo", file) };
      });
    }

    diff(o) {
      return ask("sandbox.diff", "sandbox.diff", () => {
        const { base, commit, branch, author } = options("sandbox.diff", o);
        return { base, commit, branch, author };
      }, (r) => ({ ...r, changed: r.changed ?? [] }));
    }

    prompt(said, o) {
      return ask("sandbox.prompt", "sandbox.prompt", () => {
        const { model, resume, dir, images } = options("sandbox.prompt", o);
        return { text: text("sandbox.prompt", "the first argument", said), model, resume, dir, images };
      });
    }

    next(turn, after) {
      return ask("sandbox.next", "sandbox.next", () => ({ ...turnOf("sandbox.next", turn), after }), (r) => ({
        after: r.after, events: (r.events ?? []).map((e) => ({ type: e.type, data: e.data ?? {}, session: e.session, usage: counts(e.usage) })),
      }));
    }

    // permit resolves when what a CLI asks for is allowed, and rejects with a ToolError when it is not.
    async permit(asked) {
      await permit(`cli.${text("sandbox.permit", "the action", asked?.action ?? "tool")}`, asked.args ?? {}, text("sandbox.permit", "the id", asked.id));
    }

    answer(id, { allow, message } = {}) {
      return ask("sandbox.answer", "sandbox.answer", () => ({ id: text("sandbox.answer", "the id", id), allow: allow === true, message }), (r) => r.taken === true);
    }

    ask(question) {
      return ask("sandbox.ask", "sandbox.ask", () => {
        const { id, text: said, options: choice, schema } = options("sandbox.ask", question);
        return { id: text("sandbox.ask", "the id", id), text: said ?? "", options: choice, schema };
      });
    }

    withdraw(ids) {
      return ask("sandbox.withdraw", "sandbox.withdraw", () => ({ ids: texts("sandbox.withdraw", "the argument", [ids].flat()) }), () => undefined);
    }

    interrupt(turn) {
      return ask("sandbox.interrupt", "sandbox.interrupt", () => turnOf("sandbox.interrupt", turn), () => undefined);
    }

    checkpoint(paths, o) {
      return ask("sandbox.checkpoint", "sandbox.checkpoint", () => ({ paths: paths === undefined ? undefined : texts("sandbox.checkpoint", "the paths", [paths].flat()), file: options("sandbox.checkpoint", o).file }));
    }

    restore(file, o) {
      return ask("sandbox.restore", "sandbox.restore", () => ({ file: isObject(file) ? pathOf("sandbox.restore", file.file ?? file) : pathOf("sandbox.restore", file), dir: options("sandbox.restore", o).dir }));
    }

    processes() {
      return query("sandbox.processes", "sandbox.processes", () => "", (r) => (r.processes ?? []).map((p) => ({ ...p, started: dated(p.started) })));
    }

    signal(id, signal) {
      return ask("sandbox.signal", "sandbox.signal", () => ({ id: text("sandbox.signal", "the id", id), signal }), () => undefined);
    }

    preview(port, o) {
      return ask("sandbox.preview", "sandbox.preview", () => {
        if (typeof port !== "number") throw new TypeError("sandbox.preview: the port is a number");
        return { port, lasts: options("sandbox.preview", o).lasts };
      }, (r) => ({ url: r.url, expires: dated(r.expires) }));
    }

    // work has the CLI do a turn, and sees to all that it asks meanwhile.
    async work(said, o = {}) {
      const turn = await this.prompt(said, o);
      try {
        return await attend(this, turn, o);
      } catch (e) {
        await this.interrupt(turn).catch(() => {});
        throw e;
      }
    }
  }

  // attend follows a turn to its end.
  async function attend(box, turn, o) {
    const open = new Map(); // what is asked, by its id, and what answers it
    const withdrawn = new Set();
    const begin = (data, answers) => {
      const answered = answers(data).finally(() => open.delete(data.id));
      answered.catch(() => {}); // it is looked at below
      open.set(data.id, answered);
    };
    const decide = async (asked) => {
      let said = { allow: true };
      try {
        await box.permit(asked);
      } catch (e) {
        if (e?.kind === "cancelled") throw e; // the run is to end
        said = { allow: false, message: reason(e) };
      }
      if (!withdrawn.has(asked.id)) await box.answer(asked.id, said);
    };
    const reply = async (question) => {
      const got = await box.ask(question);
      if (withdrawn.has(question.id)) return;
      await box.answer(question.id, got.refused === undefined ? { allow: true, message: answerText(got.answer) } : { allow: false, message: got.refused });
    };
    let session, after;
    for (;;) {
      const got = await firstOf(box.next(turn, after), open);
      after = got.after;
      for (const { type, data, ...more } of got.events) {
        if (type === "session.started") {
          session = data.id;
          o.onSession?.(data);
        } else if (type === "permission.asked") begin(data, decide);
        else if (type === "question.asked") begin(data, reply);
        else if (type === "permission.withdrawn" && open.has(data.id)) {
          withdrawn.add(data.id);
          await box.withdraw([data.id]);
        } else if (type === "turn.ended") {
          for (const id of open.keys()) withdrawn.add(id);
          if (open.size > 0) await box.withdraw([...open.keys()]);
          await Promise.all(open.values());
          return { turn: turn.turn, status: data.status, reason: data.reason, text: data.text ?? "", fault: data.fault, session: more.session ?? session, usage: more.usage };
        }
      }
    }
  }

  const open = () => query("sandbox.open", "sandbox.open", () => "", (b) => new Box(b));
  return Object.freeze({ open });
}

// firstOf waits for a promise, and rejects as soon as one of those that are open does.
const firstOf = (promise, open) => new Promise((resolve, reject) => {
  promise.then(resolve, reject);
  for (const p of open.values()) p.catch(reject);
});

// reason is what a CLI is told of why it may not.
const reason = (e) => `${e?.message ?? e}`;

function turnOf(what, turn) {
  if (typeof turn === "string") return { turn };
  return { turn: text(what, "the turn", turn?.turn), generation: turn.generation };
}

const fileOf = (f) => ({ ...f, modified: dated(f.modified) });
