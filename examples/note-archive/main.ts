import { Agent, ToolError, type FileInfo, type Message } from "skep";

interface Note {
  path: string;
  title: string;
  words: number;
  done: boolean; // it has a line "status: done"
}

/** What the tools of an MCP server for files return. */
interface Text {
  content: string;
}

/**
 * Looks through a folder of notes by the tools of an MCP server, writes what it finds into a file of the session by a tool that Skep
 * brings, and moves what is done into an archive: all of it after a person has agreed, or nothing.
 */
export default class NoteArchive extends Agent {
  async #notes(dir: string): Promise<Note[]> {
    const { content }: Text = await this.tools.notes.search_files({ path: dir, pattern: "*.md" });
    const paths = content === "No matches found" ? [] : content.split("\n").sort();
    return Promise.all(paths.map((path) => this.#note(path))); // all at once
  }

  async #note(path: string): Promise<Note> {
    const { content }: Text = await this.tools.notes.read_text_file({ path });
    const title = /^# (.*)$/m.exec(content)?.[1] ?? path.slice(path.lastIndexOf("/") + 1);
    return { path, title, words: content.split(/\s+/).filter(Boolean).length, done: /^status: done$/m.test(content) };
  }

  /** Writes report.md into the session. */
  async report({ dir }: { dir: string }): Promise<{ notes: number; file: string }> {
    const notes = await this.#notes(dir);
    const rows = notes.map((n) => `| ${n.title} | ${n.words} | ${n.done ? "done" : "open"} |`);
    const text = ["| note | words | |", "|---|---|---|", ...rows, ""].join("\n");
    const file: FileInfo = await this.tools.files.write({ path: "report.md", text, type: "text/markdown" });
    return { notes: notes.length, file: file.path };
  }

  /** Moves the notes that are done. The run waits until somebody has agreed to all of the moves. */
  async archive({ dir, to = `${dir}/archive` }: { dir: string; to?: string }): Promise<{ moved: string[]; why?: string }> {
    const done = (await this.#notes(dir)).filter((n) => n.done && !n.path.startsWith(`${to}/`));
    if (done.length === 0) return { moved: [] };
    const moves = done.map((n) => ({ source: n.path, destination: `${to}/${n.path.slice(n.path.lastIndexOf("/") + 1)}` }));
    try {
      await this.tools.change(
        `Archive ${moves.length} of the notes in ${dir}`,
        moves.map(({ source, destination }) => ({
          tool: "notes.move_file",
          args: { source, destination },
          undo: { tool: "notes.move_file", args: { source: destination, destination: source } },
        })),
      );
    } catch (e) {
      if (e instanceof ToolError && e.kind === "denied") return { moved: [], why: e.message }; // nothing was moved
      throw e; // one failed, and those before it were moved back
    }
    this.emit("archived", { notes: done.map((n) => n.title) });
    return { moved: moves.map((m) => m.destination) };
  }

  /** A message that names a folder is answered with how many of its notes are open. */
  async onMessage(message: Message<string>): Promise<string> {
    const open = (await this.#notes(message.content.trim())).filter((n) => !n.done);
    return open.length === 0 ? "Everything is done." : `${open.length} open: ${open.map((n) => n.title).join(", ")}`;
  }
}
