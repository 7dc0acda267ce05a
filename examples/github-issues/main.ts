import { Agent, SkepError, secret, type Message } from "skep";

/** An issue as GitHub's API has it, as far as it is used here. */
interface Issue {
  number: number;
  title: string;
  html_url: string;
  updated_at: string;
  labels: { name: string }[];
  pull_request?: object;
}

interface Query {
  repo: string; // owner/name
  label?: string;
  most?: number;
}

export default class GitHubIssues extends Agent {
  // The API's address is a setting, for GitHub Enterprise and for tests.
  #url(path: string) {
    return (this.config.api ?? "https://api.github.com") + path;
  }

  // Each request names the secret. Its value is put in on the way out, by the host.
  async #ask(url: string, init: RequestInit = {}): Promise<Response> {
    const headers = { accept: "application/vnd.github+json", authorization: `Bearer ${secret("github")}`, "user-agent": "skep-example" };
    let response: Response;
    try {
      response = await fetch(url, { ...init, headers, signal: AbortSignal.timeout(10_000) });
    } catch (e) {
      const { cause } = e as Error;
      if (cause instanceof SkepError && cause.kind === "denied") {
        throw new Error(`not allowed: ${cause.message}`, { cause });
      }
      throw e;
    }
    if (!response.ok) {
      const { message = "" } = await response.json().catch(() => ({}));
      throw new Error(`GitHub answered ${response.status} ${message}`.trim());
    }
    return response;
  }

  /** Lists open issues, the last changed first, from as many pages as it takes. */
  async list({ repo, label, most = 30 }: Query) {
    const query = new URLSearchParams({ state: "open", sort: "updated", per_page: String(Math.min(most, 100)) });
    if (label) query.set("labels", label);
    let next: string | undefined = this.#url(`/repos/${repoPath(repo)}/issues?${query}`);
    const found: { number: number; title: string; url: string; labels: string[] }[] = [];
    while (next && found.length < most) {
      const response = await this.#ask(next);
      for (const issue of (await response.json()) as Issue[]) {
        if (issue.pull_request) continue; // GitHub lists those, too
        found.push({ number: issue.number, title: issue.title, url: issue.html_url, labels: issue.labels.map((l) => l.name) });
      }
      next = /<([^>]+)>; *rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
    }
    return found.slice(0, most);
  }

  /** Opens an issue. */
  async open({ repo, title, body }: { repo: string; title: string; body?: string }) {
    const response = await this.#ask(this.#url(`/repos/${repoPath(repo)}/issues`), { method: "POST", body: JSON.stringify({ title, body }) });
    const issue = (await response.json()) as Issue;
    this.emit("opened", { repo, number: issue.number });
    return { number: issue.number, url: issue.html_url };
  }

  /** A message that names a repository is answered with its issues. */
  async onMessage(message: Message<string>) {
    const repo = /[\w.-]+\/[\w.-]+/.exec(message.content)?.[0];
    if (!repo) return "Which repository? Write owner/name.";
    const issues = await this.list({ repo, most: 10 });
    return issues.map((i) => `#${i.number} ${i.title}`).join("\n") || `${repo} has no open issues.`;
  }
}

function repoPath(repo: string): string {
  if (!/^[\w.-]+\/[\w.-]+$/.test(repo) || repo.includes("..")) throw new TypeError(`${JSON.stringify(repo)} is not a repository: write owner/name`);
  return repo;
}
