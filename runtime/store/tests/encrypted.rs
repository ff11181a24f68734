//! What the store's other tests ask of stores, asked of encrypted ones: the same files, in which every store has a key
//! ([`crash::story::options`]).
#![allow(clippy::unwrap_used, clippy::duplicate_mod, reason = "tests of other files, each with its own modules")]

#[path = "checkpoints.rs"]
mod checkpoints;
#[path = "conformance.rs"]
mod conformance;
#[path = "copy.rs"]
mod copy;
#[path = "crash.rs"]
mod crash;
#[path = "damage.rs"]
mod damage;
#[path = "faults.rs"]
mod faults;
#[path = "histories.rs"]
mod histories;
#[path = "kill_loop.rs"]
mod kill_loop;
#[cfg(feature = "object-store")]
#[path = "object_server.rs"]
mod object_server;
#[path = "processes.rs"]
mod processes;
#[path = "reclaim.rs"]
mod reclaim;
#[path = "sharing.rs"]
mod sharing;
#[path = "verify.rs"]
mod verify;
