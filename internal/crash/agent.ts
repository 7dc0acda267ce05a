// What the crash harness calls. Each turn has one effect: it adds one to a number and keeps what it was for under it.
import { Agent } from "skep";

type Op = { name: string; alarm?: number; every?: number; times?: number; to?: string[]; url?: string; fail?: boolean; share?: boolean };
type Shared = { by?: Record<string, number> };

export default class Worker extends Agent<{}, Shared> {
  async effect(name: string) {
    const n = ((await this.storage.get("n")) ?? 0) + 1;
    await this.storage.set("n", n);
    await this.storage.set("e/" + `${n}`.padStart(8, "0"), name);
    this.emit("effect", { name, n });
    await this.broadcast({ name, n });
    return n;
  }

  // Each version of what clients share adds a name, with its own number.
  share(name: string) {
    const by = this.state?.by ?? {};
    this.setState({ by: { ...by, [name]: Object.keys(by).length + 1 } });
  }

  async op(o: Op) {
    const n = await this.effect(o.name);
    if (o.alarm !== undefined) await this.schedule(o.alarm, "ring", { name: o.name, url: o.url }, { name: o.name, retry: { attempts: 100, delay: 0.1 } });
    if (o.every) await this.schedule({ every: o.every }, "beat", { name: o.name, times: o.times }, { name: o.name, retry: { attempts: 100, delay: 0.1 } });
    for (const key of o.to ?? []) await this.agent(this.name, key, { send: true }).hear(o.name);
    if (o.share) this.share(o.name);
    if (o.fail) throw new Error("as it was asked to");
    if (o.url && o.alarm === undefined) {
      await this.tell(o.url, o.name);
      await this.effect(o.name + "/b");
    }
    return n;
  }

  async tell(url: string, key: string) {
    const res = await fetch(url, { method: "PUT", headers: { "Idempotency-Key": key } });
    if (!res.ok) throw new Error(`the outside world answers ${res.status}`);
    await res.text();
  }

  async ring(o: Op) {
    if (o.url) await this.tell(o.url, "alarm " + o.name);
    await this.effect("alarm " + o.name);
  }

  async beat(o: Op) {
    const n = ((await this.storage.get("beat " + o.name)) ?? 0) + 1;
    await this.storage.set("beat " + o.name, n);
    await this.effect(`beat ${n} ${o.name}`);
    if (n >= o.times!) await this.cancelSchedule(o.name);
  }

  async hear(name: string) {
    await this.effect("message " + name);
  }

  // A run that waits in the middle, for which it holds no cell.
  async flow(o: Op) {
    await this.step("first", () => this.effect("flow 1 " + o.name));
    await this.step("tell", () => this.tell(o.url!, "flow " + o.name));
    await this.sleep(o.alarm!);
    await this.step("second", () => this.effect("flow 2 " + o.name));
    return o.name;
  }

  // A run that waits for two events, which the harness sends again until it knows that they were taken.
  async held(o: Op) {
    await this.step("first", () => this.effect("held 1 " + o.name));
    for (let i = 0; i < 2; i++) {
      const { n } = await this.waitForEvent<{ n: number }>("go");
      await this.effect(`held ${n} ${o.name}`);
    }
    return o.name;
  }

  // A run with a call that a person has to allow.
  async ask(o: Op & { sent: object }) {
    await this.effect("ask 1 " + o.name);
    try {
      await this.tools.ledger.pay(o.sent);
    } catch (e: any) {
      if (e.kind !== "denied") throw e;
      await this.effect("ask denied " + o.name);
      return "denied";
    }
    await this.effect("ask 2 " + o.name);
    return "paid";
  }

  // Alarms with times spread evenly over a while.
  async storm(o: { count: number; from: number; within: number }) {
    for (let i = 0; i < o.count; i++) {
      const at = o.from + Math.floor((o.within * i) / o.count);
      await this.schedule(new Date(at), "stormed", { n: i, at }, { name: `${i}` });
    }
  }

  async stormed(o: { n: number; at: number }) {
    await this.effect(`storm ${o.n} ${o.at} ${Date.now()}`);
  }

  async onMessage(message: { content: string }) {
    try {
      await this.effect("run " + message.content);
    } catch (e) {
      if (!/not granted here/.test(`${e}`)) throw e; // a run that does not have the instance
    }
    return message.content;
  }
}
