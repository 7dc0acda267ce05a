// What runs an agent whose work a command-line agent does in a sandbox: a run of such an agent, which has no code of its own, is a run of this script.
import { SkepError, emit, sandbox, storage } from "skep";
import type { Context, SandboxChange, SandboxRepo, SandboxUsage } from "skep";

/** What a run takes, or a message's content is. A text is the task. */
interface Task {
  task: string;
  /** What to work on: the URL of a repository, or a tar among the files of the session. What is in the workspace unless given. */
  repo?: string | SandboxRepo;
  /** Branch, tag or commit of `repo`. */
  ref?: string;
  /** Commit what was changed with this message; `true` takes the first line of the task. The output has a bundle in place of a patch. */
  commit?: string | boolean;
  /** The branch of that commit. */
  branch?: string;
  /** Files of the session that the CLI is to see, read-only. */
  attachments?: string[];
  /** A session of the CLI's to go on with. One that the agent keeps its sandbox for is known. */
  resume?: string;
}

/** What a run returns. */
interface Outcome {
  text: string;
  status: string;
  turn: string;
  /** What the CLI believes to have used. */
  usage?: SandboxUsage;
  /** Path among the files of the session: what the run has used, by the ledger. */
  used?: string;
  /** Path among the files of the session, when something was changed. */
  patch?: string;
  bundle?: string;
  /** Path among the files of the session: the changed files as JSON. */
  list?: string;
  commit?: string;
  changed: SandboxChange[];
}

const fields = ["task", "repo", "ref", "commit", "branch", "attachments", "resume"];

function read(input: unknown): Task {
  if (typeof input === "string") return check({ task: input });
  if (typeof input !== "object" || input === null || Array.isArray(input)) {
    throw new SkepError("invalid", 'the input is a text, or an object such as { "task": "Fix the test", "repo": "https://example.com/x.git" }');
  }
  if ("role" in input && "content" in input) return read(input.content); // a message of a session
  const { text, ...rest } = input as Record<string, unknown>;
  const given = text !== undefined && rest.task === undefined ? { ...rest, task: text } : (input as Record<string, unknown>);
  for (const name of Object.keys(given)) {
    if (!fields.includes(name)) throw new SkepError("invalid", `the input has no field ${JSON.stringify(name)}; there are ${fields.join(", ")}`);
  }
  return check(given as unknown as Task);
}

function check(task: Task): Task {
  if (typeof task.task !== "string" || task.task.trim() === "") throw new SkepError("invalid", "the input's task is a text that says what to do");
  if (task.attachments !== undefined && !Array.isArray(task.attachments)) throw new SkepError("invalid", "the input's attachments are an array of paths");
  return task;
}

const firstLine = (text: string) => text.trim().split("\n", 1)[0].slice(0, 72);

export default async function work(input: unknown, ctx: Context): Promise<Outcome> {
  const task = read(input);
  const box = await sandbox.open();
  const repo = typeof task.repo === "string" ? { url: task.repo } : task.repo;
  await box.repo({ ...repo, ref: task.ref ?? repo?.ref });
  let text = task.task;
  let images: string[] = [];
  if (task.attachments !== undefined && task.attachments.length > 0) {
    const put = await box.attach(task.attachments);
    images = put.images;
    text += `\n\nFiles that belong to this task, which can only be read:\n${put.paths.map((p) => `- ${p}`).join("\n")}`;
  }
  // A sandbox that the agent keeps has the CLI's sessions of before, unless it was made anew: this one goes on where the last run of this session ended.
  const kept = `cli/${ctx.sessionId}/${box.id}.${box.kept ?? 0}`;
  const resume = task.resume ?? (box.keep === "pet" ? await storage.get<string>(kept) : undefined);
  const done = await box.work(text, { resume, images });
  if (box.keep === "pet" && done.session !== undefined && done.session !== resume) await storage.set(kept, done.session);
  const commit = task.commit === true ? firstLine(task.task) : task.commit || undefined;
  const diff = await box.diff({ commit, branch: task.branch });
  const { patch, bundle, list, changed, usage: used } = diff;
  if (done.status === "failed") {
    if (changed.length > 0) emit("sandbox.changes", { patch, bundle, list, changed, used });
    throw new SkepError(done.fault?.kind ?? "failed", `${box.cli} has failed: ${done.fault?.message ?? done.reason ?? "it does not say why"}`, undefined, done.fault?.hint);
  }
  return { text: done.text, status: done.status, turn: done.turn, usage: done.usage, used, patch, bundle, list, commit: diff.commit, changed };
}
