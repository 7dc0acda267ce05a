using Workerd = import "/workerd/workerd.capnp";

# One parent worker on a loopback socket, whose workers reach nothing. The bundle, which the bench makes of codemode.mjs, stands beside a copy of this.
const config :Workerd.Config = (
  services = [
    (name = "parent", worker = .parent),
    (name = "internet", network = (allow = [])),
  ],
  sockets = [(name = "main", address = "127.0.0.1:0", http = (), service = "parent")],
);

const parent :Workerd.Worker = (
  modules = [(name = "parent", esModule = embed "bundle.mjs")],
  compatibilityDate = "2026-04-01",
  compatibilityFlags = ["experimental", "nodejs_compat"],
  bindings = [(name = "LOADER", workerLoader = (id = "bench"))],
);
