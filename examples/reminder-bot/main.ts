import { Agent, type When } from "skep";

/** What to say, and one of `in`, `at`, `every` and `cron`: when. */
interface Reminder {
  text: string;
  /** Seconds from now. */
  in?: number;
  /** A date, such as "2027-01-31T09:00:00Z". */
  at?: string;
  /** Again and again, after so many seconds. */
  every?: number;
  /** Again and again, by the wall clock of a zone: "0 9 * * 1-5" with "Europe/Berlin". The zone is UTC unless given. */
  cron?: string;
  zone?: string;
  /** Of repeated reminders, for times that passed while no server ran: one for all, as by default, none, or one for each. */
  missed?: "once" | "skip" | "all";
}

/** Reminds one person. The instance's key says whom: each person has a list of their own. */
export default class ReminderBot extends Agent {
  /** Sets a reminder. Its text is its name, so that the same reminder set again is moved. */
  async remind(reminder: Reminder) {
    const { text, missed } = reminder;
    if (!text) throw new TypeError("remind of what? give a text");
    const { name, at } = await this.schedule(due(reminder), "ring", { text }, { name: text, missed, retry: { attempts: 3, delay: 1 } });
    return { name, at: at.toISOString() };
  }

  /**
   * Runs when a reminder is due. What it throws is tried again, and after three times kept as a dead letter.
   * The request stands first: a request that fails leaves nothing behind, and one that has left is not undone.
   */
  async ring({ text }: { text: string }) {
    const { webhook } = this.config;
    if (webhook) {
      const response = await fetch(webhook, { method: "POST", body: `${this.key}: ${text}` });
      if (!response.ok) throw new Error(`${webhook} answered ${response.status}`);
    }
    const number = ((await this.storage.get<number>("rung")) ?? 0) + 1;
    await this.storage.set("rung", number);
    this.emit("reminder", { to: this.key, text, number });
  }

  /** All that is set, and what has failed. */
  async list() {
    const all = await this.listSchedules();
    return all.map(({ name, at, dead, error }) => ({ name, at: at.toISOString(), dead, error }));
  }

  /** Takes a reminder back, and returns whether it was there. */
  forget(text: string) {
    return this.cancelSchedule(text);
  }
}

function due({ in: seconds, at, every, cron, zone }: Reminder): When {
  if (seconds !== undefined) return seconds;
  if (at !== undefined) return new Date(at);
  if (every !== undefined) return { every };
  if (cron !== undefined) return { cron, zone };
  throw new TypeError("when? give in, at, every or cron");
}
