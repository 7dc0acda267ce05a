import { Agent, type Connection } from "skep";

interface Room {
  topic: string;
  people: string[];
}

/** A chat room over WebSockets. The instance's key is the room's name, and its shared state is what all who are in it see. */
export default class ChatRoom extends Agent {
  initialState: Room = { topic: "anything", people: [] };

  onStart() {
    this.sql`CREATE TABLE line (id INTEGER PRIMARY KEY, who TEXT NOT NULL, text TEXT NOT NULL, at INTEGER NOT NULL)`;
  }

  /** Refuses what a client may not make of the state. */
  validateStateChange(next: Room) {
    if (typeof next.topic !== "string" || next.topic.length > 80) throw new Error("a topic has at most 80 characters");
  }

  async onConnect(connection: Connection, { request }: { request: { url: string } }) {
    const who = new URL(request.url).searchParams.get("who") ?? "somebody";
    await connection.setState({ who });
    await this.present();
  }

  /** Text that is no protocol frame is said to the room. */
  async onSocketMessage(connection: Connection<{ who: string }>, text: string) {
    await this.#put(connection.state?.who ?? "somebody", text);
  }

  async onClose() {
    await this.present();
  }

  /** Says something without a socket. */
  async say({ who, text }: { who: string; text: string }) {
    await this.#put(who, text);
  }

  async #put(who: string, text: string) {
    const at = Date.now();
    await this.sql`INSERT INTO line (who, text, at) VALUES (${who}, ${text}, ${at})`;
    await this.broadcast(JSON.stringify({ who, text, at }));
  }

  history(count = 20) {
    return this.sql`SELECT who, text, at FROM (SELECT * FROM line ORDER BY id DESC LIMIT ${count}) ORDER BY id`;
  }

  async present() {
    const all = await this.connections<{ who: string }>();
    const people = [...new Set(all.map((c) => c.state?.who ?? "somebody"))].sort();
    this.setState({ ...(this.state as Room), people });
  }
}
