// Sums paid orders by customer, reads in parallel, and writes one file.
import { tools } from "skep";

interface Order { customer: string; paid: boolean; total: number }

export default async function main(input: { dir: string }, context: unknown) {
  const { filesystem: fs } = tools;
  const listing = await fs.list_directory({ path: input.dir });
  const names = String(listing.content ?? "").split("\n").filter((l) => l.startsWith("[FILE]")).map((l) => l.slice(7));
  const texts = await Promise.all(names.map((n) => fs.read_text_file({ path: `${input.dir}/${n}`, head: 10 })));
  const sums: Record<string, number> = {};
  for (const t of texts) {
    const o = JSON.parse((t as { content: string }).content) as Order;
    if (o.paid) sums[o.customer] = (sums[o.customer] ?? 0) + o.total;
  }
  await tools.filesystem.write_file({ path: input.dir + "/sums.json", content: JSON.stringify(sums) });
  const issue = await tools.github.create_issue({ owner: "acme", repo: "x", title: "Sums", body: JSON.stringify(sums), labels: ["report"] });
  const commits = await tools.call("git.git_log", { maxCount: 5 });
  await tools["sequential-thinking"].sequentialthinking({ thought: "done", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 });
  return { sums, issue, commits, sum: await tools.everything.get_sum({ a: 1, b: 2 }) };
}
