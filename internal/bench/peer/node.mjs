// The other peer of figures P1 and P2: what a user of Node's vm module would write. It is a namespace, not a sandbox: its
// code can reach the process, and nothing but a time limit holds it.
import http from "node:http";
import vm from "node:vm";

const context = () => vm.createContext({ URL });

const warm = context();
const greet = new vm.Script("(input) => ({ hi: input.name })").runInContext(warm);

const read = async (request) => {
  let text = "";
  request.setEncoding("utf8");
  for await (const piece of request) text += piece;
  return text;
};

const answer = async (request) => {
  switch (request.url) {
    case "/load": // the body is a script never seen before; its context is new and let go
      return new vm.Script(await read(request)).runInContext(context(), { timeout: 10_000 });
    case "/warm": // a function and a context that stay
      return greet(JSON.parse(await read(request)));
  }
  return "ready";
};

const server = http.createServer(async (request, response) => {
  let status = 200, body;
  try {
    body = JSON.stringify(await answer(request));
  } catch (e) {
    [status, body] = [500, String(e?.stack ?? e)];
  }
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) }).end(body);
});
const [host, port] = process.argv[2].split(":");
server.listen(Number(port), host);
