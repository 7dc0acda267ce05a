import { Agent } from "skep";

interface Order {
  item: string;
  price: number;
  /** How long the goods may be sent back. Two days unless given. */
  returns?: string;
}

interface Approval {
  by: string;
  approved: boolean;
}

/**
 * An order that a person has to approve, and that is closed two days after. While it waits it holds no memory, and a crash or an
 * update of the server changes nothing: the run goes on at the same line.
 */
export default class Orders extends Agent {
  async run({ item, price, returns = "2 days" }: Order) {
    const reservation = await this.step(
      "reserve",
      { retries: { limit: 3, delay: "10 seconds", backoff: "exponential" } },
      async () => {
        await this.storage.set(`reserved/${item}`, true);
        return { item, number: crypto.randomUUID() };
      },
      // When the run fails later, what was done is taken back, the latest first.
      { rollback: () => this.storage.delete(`reserved/${item}`) },
    );

    this.emit("approval.asked", { item, price });
    const answer = await this.waitForEvent<Approval>("approval", { timeout: "1 day" });
    if (!answer.approved) throw new Error(`${answer.by} did not approve`);

    await this.step("charge", async () => {
      this.emit("charged", { item, price });
    });

    await this.sleep(returns);
    await this.step("close", () => this.storage.set(`sold/${item}`, reservation.number));
    return { item, number: reservation.number, approvedBy: answer.by };
  }
}
