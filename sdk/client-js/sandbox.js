import { SkepError, cancelled, unavailable } from "./error.js";
import { esc, query } from "./query.js";

/** Sandbox is one sandbox, by its id. Nothing is asked of the server until a method is called. */
export class Sandbox {
  #ask; // { json, send } of the client
  #path;

  constructor(id, ask) {
    this.id = id;
    this.#ask = ask;
    this.#path = `/sandboxes/${esc(id)}`;
    this.files = {
      list: (dir, { recursive, signal } = {}) => this.#json("GET", `/list${query({ dir, recursive: recursive || undefined })}`, { signal }),
      read: async (file, options) => new Uint8Array(await whole(await this.#get(inside(file), options), "arrayBuffer", options)),
      text: async (file, options) => whole(await this.#get(inside(file), options), "text", options),
      open: async (file, options) => (await this.#get(inside(file), options)).body,
      write: async (file, data, { mode, signal } = {}) => (await this.#put(`${inside(file)}${query({ mode })}`, data, signal)).json(),
      delete: (file, { recursive, signal } = {}) => this.#json("DELETE", `${inside(file)}${query({ recursive: recursive || undefined })}`, { signal }),
    };
  }

  get(options) {
    return this.#json("GET", "", options);
  }

  /** delete deletes it, with what is kept of a pet. */
  delete(options) {
    return this.#json("DELETE", "", options);
  }

  /** recreate makes a pet anew, with its checkpoint alone, and returns when it can be used. */
  recreate(options) {
    return this.#json("POST", "/recreate", options);
  }

  /** hibernate keeps the checkpoint of a pet alone, until its next use. */
  hibernate(options) {
    return this.#json("POST", "/hibernate", options);
  }

  /** reset deletes all that is kept of a pet. */
  reset(options) {
    return this.#json("POST", "/reset", options);
  }

  /** checkpoint returns what the newest checkpoint of a pet has. */
  checkpoint(options) {
    return this.#json("GET", "/checkpoint", options);
  }

  /** exec runs a program and waits for its end. A string is a line for sh. */
  exec(command, options = {}) {
    return this.#json("POST", "/exec", { body: program(command, options), signal: options.signal });
  }

  /** start begins a program in the background, and returns its process id for signal. */
  start(command, options = {}) {
    return this.#json("POST", "/exec", { body: { ...program(command, options), background: true }, signal: options.signal });
  }

  /** stream runs a program and yields its output as it comes: its id first, how it ended last. Who stops reading ends the program. */
  async *stream(command, options = {}) {
    const { signal } = options;
    const headers = { "Content-Type": "application/json", Accept: "application/x-ndjson" };
    const res = await this.#ask.send("POST", `${this.#path}/exec`, { body: JSON.stringify(program(command, options)), headers, signal });
    let id, ended = false;
    try {
      for await (const { error, ...out } of lines(res.body)) {
        if (error) {
          ended = true;
          throw new SkepError(error.kind, error.detail, error);
        }
        id ??= out.id;
        ended = out.exit !== undefined;
        yield out;
      }
      if (!ended) throw unavailable("the connection ended before the program did");
    } catch (e) {
      throw signal?.aborted ? cancelled() : e;
    } finally {
      if (!ended && id) this.signal(id).catch(() => {}); // at once, where the server would have to notice
    }
  }

  /** processes lists the programs that were started. */
  async processes(options) {
    return (await this.#json("GET", "/processes", options)).items;
  }

  /** signal sends a signal, such as "INT", to a program and all that it has started; TERM, followed by KILL, unless given. */
  signal(process, signal, options) {
    return this.#json("POST", `/processes/${esc(process)}/signal`, { ...options, body: { signal } });
  }

  /** clone clones a git repository into the workspace. */
  clone(url, { ref, depth, signal } = {}) {
    return this.#json("POST", "/repo", { body: { url, ref, depth }, signal });
  }

  /** putRepo unpacks a tar archive as what the workspace begins with. */
  async putRepo(tar, { signal } = {}) {
    return (await this.#put("/repo", tar, signal, "application/x-tar")).json();
  }

  /** changes lists what was changed in the workspace since its repository came, or since the commit base. */
  changes({ base, signal } = {}) {
    return this.#json("GET", `/changes${query({ base })}`, { signal });
  }

  /** diff is the same as a patch of git. */
  async diff({ base, signal } = {}) {
    return whole(await this.#get(`/diff${query({ base })}`, { signal }), "text", { signal });
  }

  /** backup returns a tar archive of a folder, or of one path in it. */
  async backup(options) {
    return new Uint8Array(await whole(new Response(await this.openBackup(options)), "arrayBuffer", options));
  }

  /** openBackup returns the same as it comes. */
  async openBackup({ dir, path, signal } = {}) {
    return (await this.#get(`/archive${query({ dir, path })}`, { signal })).body;
  }

  /** restore unpacks a tar archive in a folder. */
  async restore(tar, { dir, signal } = {}) {
    await this.#put(`/archive${query({ dir })}`, tar, signal, "application/x-tar");
  }

  /** link makes a link to what listens at a port, which whoever has it can use. lasts is in milliseconds. */
  link(port, { lasts, signal } = {}) {
    return this.#json("POST", `/ports/${esc(port)}/link`, { body: { for: nanoseconds(lasts) }, signal });
  }

  #json(method, path, { body, signal } = {}) {
    return this.#ask.json(method, this.#path + path, body, {}, signal);
  }

  #get(path, { signal } = {}) {
    return this.#ask.send("GET", this.#path + path, { signal });
  }

  #put(path, body, signal, type = "application/octet-stream") {
    return this.#ask.send("PUT", this.#path + path, { body, headers: { "Content-Type": type }, signal });
  }
}

const nanoseconds = (ms) => (ms === undefined ? undefined : Math.round(ms * 1e6));

const program = (command, { dir, env, stdin, timeout, output }) => ({
  command: typeof command === "string" ? [command] : command, dir, env, stdin, timeout: nanoseconds(timeout), output,
});

// A path of one or two dots would be resolved by fetch, and be another resource.
const inside = (file) => `/files/${esc(/^\.\.?$/.test(file) ? `./${file}` : file)}`;

const whole = (res, form, { signal } = {}) => res[form]().catch((e) => {
  throw signal?.aborted ? cancelled() : unavailable("the connection ended before all had come", e);
});

/** lines reads a body of NDJSON. Empty lines are signs of life. */
async function* lines(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((e) => {
        throw unavailable("the connection ended before the program did", e);
      });
      if (done) return;
      text += decoder.decode(value, { stream: true });
      for (let end; (end = text.indexOf("\n")) >= 0; text = text.slice(end + 1)) {
        if (end > 0) yield JSON.parse(text.slice(0, end));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
