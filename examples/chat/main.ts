import { ChatAgent } from "skep";

const item = { type: "object", properties: { item: { type: "string" } }, required: ["item"] };

/** Keeps a shopping list, and writes it into a file when it is asked to. */
export default class Shopper extends ChatAgent {
  instructions = "You keep a shopping list for the user. Be brief.";
  tools = ["files.write"];

  functions = () => ({
    add: { description: "Puts something on the list.", schema: item, run: ({ item }: { item: string }) => this.storage.set(`item/${item}`, true) },
    remove: { description: "Takes something off the list.", schema: item, run: ({ item }: { item: string }) => this.storage.delete(`item/${item}`) },
    list: { description: "Says what is on the list.", run: () => this.items() },
  });

  async items() {
    const { entries } = await this.storage.list({ prefix: "item/" });
    return entries.map((e) => e.key.slice("item/".length)).join(", ") || "nothing";
  }
}
