import { Agent, type Message } from "skep";

interface Person {
  name?: string;
}

export default class Hello extends Agent {
  greet(person: Person) {
    const name = person.name?.trim();
    if (!name) {
      throw new TypeError("whom shall I greet? give a name");
    }
    console.log(`greeting ${name}`);
    return { text: `${this.config.word ?? "Hello"}, ${name}!` };
  }

  // A session's messages come here; what is returned is the answer.
  onMessage(message: Message<string>) {
    return `You said: ${message.content}`;
  }
}
