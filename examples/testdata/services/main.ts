import { Agent, config } from "skep";

/** What the workflows of tests ask of others: each thing that was done is a line of the log. */
export function charge(cents: number) {
  if (config.down) throw new Error("payments are down");
  console.log(`charged ${cents}`);
  return `c-${cents}`;
}

export function refund(id: string) {
  console.log(`refunded ${id}`);
}

export function ship({ item }: { item: string }) {
  if (config.down) throw new Error("the warehouse is down");
  console.log(`shipped ${item}`);
}

/** An instance that answers when the place it asks does, and counts how often it has. */
export default class extends Agent {
  async ask(path: string) {
    const text = await (await fetch(config.place + path)).text();
    const n = ((await this.storage.get<number>("n")) ?? 0) + 1;
    await this.storage.set("n", n);
    return `${this.key} ${text} ${n}`;
  }

  async asked() {
    return (await this.storage.get<number>("n")) ?? 0;
  }
}
