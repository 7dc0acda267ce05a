import { Agent, type StepOptions } from "skep";
import type * as payments from "./payments.ts";

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

const patient: StepOptions = { retries: { limit: 3, delay: "2 seconds", backoff: "exponential" } };

/**
 * An order that a person has to approve, and that is closed two days after. While it waits it holds no memory, and a crash or an
 * update of the server changes nothing: the run goes on at the same line.
 */
export default class Orders extends Agent {
  async run({ item, price, returns = "2 days" }: Order) {
    await this.step("reserve", () => this.#reserve(item), { rollback: () => this.storage.delete(`reserved/${item}`) });

    this.emit("approval.asked", { item, price });
    const answer = await this.waitForEvent<Approval>("approval", { timeout: "1 day" });
    if (!answer.approved) throw new Error(`${answer.by} did not approve`);

    // When the run fails later, or is terminated, what was done is taken back: the latest step first.
    const pay = this.agent<typeof payments>("payments");
    const { receipt } = await this.step("charge", patient, () => pay.charge({ item, price }), { rollback: ({ output }) => pay.refund(output) });

    await this.sleep(returns);

    await this.step("close", async () => {
      await this.storage.set(`sold/${item}`, receipt);
      await this.storage.delete(`reserved/${item}`);
    });
    return { item, receipt, approvedBy: answer.by };
  }

  async #reserve(item: string) {
    if (await this.storage.get(`reserved/${item}`)) throw new Error(`${item} is reserved already`);
    await this.storage.set(`reserved/${item}`, true);
  }

  /** A turn: it answers at once, also while runs of the same shop wait. */
  async stock() {
    const { entries } = await this.storage.list();
    return entries.map((e) => e.key);
  }
}
