import { Agent, sleep, type Message } from "skep";

interface Task {
  goal: string;
  /** How long a step takes, in milliseconds. */
  pace?: number;
}

interface Step {
  title: string;
  after: string[];
}

/**
 * Plans how to reach a goal, then works through the plan and reports as it goes. Steps that wait for nothing run side by side.
 * The work itself is played: put a call of a model or of another agent where `work` sleeps.
 */
export default class Planner extends Agent {
  async run(task: Task) {
    const plan = makePlan(task.goal);
    this.emit("plan", { goal: task.goal, steps: plan.map((step) => step.title) });

    const results = new Map<string, Promise<string>>();
    let done = 0;
    for (const step of plan) {
      const ready = Promise.all(step.after.map((title) => results.get(title)));
      results.set(
        step.title,
        ready.then(async () => {
          this.emit("step", { title: step.title, state: "started" });
          const result = await work(step, task.pace ?? 400);
          done++;
          this.emit("step", { title: step.title, state: "done", result });
          this.emit("progress", { done, total: plan.length });
          return result;
        }),
      );
    }
    const findings = await Promise.all(results.values());
    return { goal: task.goal, findings };
  }

  onMessage(message: Message<string>) {
    return this.run({ goal: message.content });
  }
}

function makePlan(goal: string): Step[] {
  const topics = goal.split(/\s+(?:and|or|with)\s+|,\s*/).filter(Boolean).slice(0, 4);
  const research = topics.map((topic) => ({ title: `research ${topic}`, after: [] }));
  return [
    ...research,
    { title: "compare", after: research.map((step) => step.title) },
    { title: "write it up", after: ["compare"] },
  ];
}

async function work(step: Step, pace: number): Promise<string> {
  await sleep(pace);
  return `${step.title}: ok`;
}
