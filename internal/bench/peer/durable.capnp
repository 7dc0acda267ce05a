using Workerd = import "/workerd/workerd.capnp";

# Durable Objects that keep their data in SQLite, on a loopback socket. The address and the directory are replaced on the command line.
const config :Workerd.Config = (
  services = [
    (name = "objects", worker = .objects),
    (name = "storage", disk = (path = "/tmp/replaced", writable = true)),
    (name = "internet", network = (allow = [])),
  ],
  sockets = [(name = "main", address = "127.0.0.1:0", http = (), service = "objects")],
);

const objects :Workerd.Worker = (
  modules = [(name = "objects", esModule = embed "durable.mjs")],
  compatibilityDate = "2026-04-01",
  durableObjectNamespaces = [(className = "Counter", uniqueKey = "bench-counter", enableSql = true)],
  durableObjectStorage = (localDisk = "storage"),
  bindings = [(name = "COUNTER", durableObjectNamespace = "Counter")],
);
