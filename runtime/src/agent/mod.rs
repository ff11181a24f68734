//! The agent: a process of its own that takes the checkpoints of one program.
//!
//! It is started on the first trigger, by libckpt.so or by `ckpt checkpoint`, remembers what has to be remembered
//! between two checkpoints (the write-protection, the digests of unchanged pages), and ends with the program.
//! It is nobody the program knows: in its own session, without the program's descriptors, not its child. Exactly
//! one agent serves a program: the one that holds the lock beside its socket; whoever comes second hands its
//! request over and leaves.

mod address;
mod behind;
mod client;
pub mod news;
mod protocol;
mod recorded;
mod request;
mod restart_script;
mod retention;
mod server;
mod store_options;
mod usher;

pub use address::Address;
pub use client::{AwaitingProgram, request_checkpoint, start};
pub use request::{AgentOptions, CheckpointRequest, Method, Progress, Trigger, store_of};
pub use server::serve;
pub use store_options::digest_warning;
