import { ChatAgent } from "skep";

export default class Assistant extends ChatAgent {
  twice(n: number) { return 2 * n; }
}
