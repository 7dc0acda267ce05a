import { Agent } from "skep";

interface Reminder {
  text: string;
  /** Seconds from now, a date such as "2027-01-31T09:00:00Z", or a cron line such as "0 9 * * 1-5". */
  when: number | string;
  /** Of a cron line: "Europe/Berlin". UTC unless given. */
  zone?: string;
}

/** Reminds one person. The instance's key says whom: each person has a list of their own. */
export default class ReminderBot extends Agent {
  /** Sets a reminder and returns its name. The same reminder set twice is one. */
  async remind({ text, when, zone }: Reminder) {
    const isDate = typeof when === "string" && !Number.isNaN(Date.parse(when));
    const due = typeof when === "number" ? when : isDate ? new Date(when) : { cron: when, zone };
    const { name, at } = await this.schedule(due, "ring", { text });
    return { name, at: at.toISOString() };
  }

  /** Runs when a reminder is due. What it throws is tried again, and after six times kept as a dead letter. */
  async ring({ text }: { text: string }) {
    const rung = ((await this.storage.get<number>("rung")) ?? 0) + 1;
    await this.storage.set("rung", rung);
    this.emit("reminder", { to: this.key, text, number: rung });
  }

  async list() {
    const all = await this.listSchedules();
    return all.map(({ name, at, payload }) => ({ name, at: at.toISOString(), payload }));
  }

  forget(name: string) {
    return this.cancelSchedule(name);
  }
}
