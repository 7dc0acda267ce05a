import { Agent, type Connection } from "skep";

interface Room {
  topic: string;
  people: string[];
}

interface Line {
  id: number;
  who: string;
  text: string;
  at: number;
}

/** A chat room over WebSockets. The instance's key is the room's name, and its shared state is what all who are in it see. */
export default class ChatRoom extends Agent {
  initialState: Room = { topic: "anything", people: [] };

  async onStart() {
    await this.sql`CREATE TABLE line (id INTEGER PRIMARY KEY, who TEXT NOT NULL, text TEXT NOT NULL, at INTEGER NOT NULL)`;
  }

  /** Refuses what nobody may make of the state. */
  validateStateChange(next: Room, source: string) {
    if (typeof next?.topic !== "string" || next.topic.length > 80) throw new Error("a topic has at most 80 characters");
    const changed = JSON.stringify(next.people) !== JSON.stringify((this.state as Room).people);
    if (source !== "server" && changed) throw new Error("only the room says who is in it");
  }

  /** The first message of a connection is who it is; every other one is said to the room. */
  async onSocketMessage(connection: Connection<{ who: string }>, text: string) {
    const who = connection.attachment?.who;
    if (who) {
      await this.say({ who, text });
      return;
    }
    if (!/^\S.{0,38}\S$/.test(text)) {
      await connection.close(4001, "a name has 2 to 40 characters");
      return;
    }
    await connection.attach({ who: text }); // it lasts while the connection does, also while the room sleeps
    await this.#present();
  }

  async onClose() {
    await this.#present();
  }

  /** Says something, with or without a socket. All who are connected get it when it is stored. */
  async say({ who, text }: { who: string; text: string }) {
    if (typeof text !== "string" || !text.trim() || text.length > 1000) throw new Error("a line has 1 to 1000 characters");
    const at = Date.now();
    const [line] = await this.sql<Line>`INSERT INTO line (who, text, at) VALUES (${who}, ${text}, ${at}) RETURNING *`;
    await this.broadcast(line);
    return line;
  }

  /** The lines after one that the caller has, or else the last ones, oldest first. */
  history({ after = 0, most = 50 }: { after?: number; most?: number } = {}) {
    return this.sql<Line>`SELECT * FROM (SELECT * FROM line WHERE id > ${after} ORDER BY id DESC LIMIT ${most}) ORDER BY id`;
  }

  // Who is there is asked for, not counted: a server that is killed tells nobody that it has gone.
  async #present() {
    const all = await this.connections<{ who: string }>();
    const people = [...new Set(all.map((c) => c.attachment?.who ?? ""))].filter(Boolean).sort();
    this.setState({ ...(this.state as Room), people });
  }
}
