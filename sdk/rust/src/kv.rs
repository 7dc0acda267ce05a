//! Key-value state of the agent's own, which must have been granted. All cells of the agent share it, and it is gone when the
//! agent is deleted. What an edit did is durable when it returns.
//!
//! A key has a version, which rises with each commit to the state and is never used again; the version 0 stands for a key that
//! is not there. An edit that wants another version than the key has fails with an error of kind `"conflict"`.

crate::keys::functions!("state");
