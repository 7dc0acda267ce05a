using Workerd = import "/workerd/workerd.capnp";

# One parent worker on a loopback socket, whose workers reach nothing. The address is replaced on the command line.
const config :Workerd.Config = (
  services = [
    (name = "parent", worker = .parent),
    (name = "internet", network = (allow = [])),
  ],
  sockets = [(name = "main", address = "127.0.0.1:0", http = (), service = "parent")],
);

const parent :Workerd.Worker = (
  modules = [(name = "parent", esModule = embed "parent.mjs")],
  compatibilityDate = "2026-04-01",
  compatibilityFlags = ["experimental"],
  bindings = [(name = "LOADER", workerLoader = (id = "bench"))],
);
