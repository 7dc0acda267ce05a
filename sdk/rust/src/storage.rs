//! The state of the instance whose code runs, as ordered keys and values: nobody else reads or writes it, and it needs no grant.
//! Edits are part of the turn: later reads of it see them, they are durable before anything that depends on them leaves the
//! instance, and a turn that fails is undone. Versions are as in [`kv`](crate::kv).

crate::keys::functions!("storage");
