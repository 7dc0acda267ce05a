import { Agent } from "skep";

export default class Room extends Agent {
  initialState = { count: 0, names: [] as string[] };

  validateStateChange(next: any) {
    if (next?.count < 0) throw new Error("count is below 0");
  }
  onConnect(connection: any, { request }: any) {
    if (new URL(request.url, "http://x").searchParams.get("refuse")) throw new Error("4003 not you");
  }
  async onSocketMessage(connection: any, data: any) {
    if (typeof data !== "string") return connection.send(data);
    if (data.startsWith("{")) return connection.send({ heard: JSON.parse(data) });
    await this.broadcast(`all: ${data}`);
  }
  add(n: number) {
    this.setState({ ...this.state, count: this.state.count + n });
    return this.state.count;
  }
  say(text: string) {
    this.emit("said", { text });
    return text.length;
  }
  fail() { throw new TypeError("as you asked"); }
  async *countTo(n: number) {
    for (let i = 1; i <= n; i++) yield { i };
    return "done";
  }
  async slow() {
    await new Promise((resolve) => setTimeout(resolve, 1_500));
  }
  both(a: number, b: number) { return a + b; }
}

export function double(x: number) { return 2 * x; }
export function run(input: any) { return { got: input }; }
