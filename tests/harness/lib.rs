//! What the suites share: programs to run, lives to watch and end, and the comparison of two lives.
//!
//! A test owns a [`Scene`]: a temporary directory, a time limit, and the promise that no process of the test
//! outlives it. In a scene it starts a [`Program`] as a [`Life`], takes checkpoints into a [`Store`], kills the
//! life, starts a second one with [`Restart`] and compares what both have printed. [`exact`] does all of that in
//! one call, and most tests are that call with a different program. Nothing here waits by sleeping where an
//! event can be had, and nothing waits for ever.

pub mod boot;
pub mod command;
pub mod control_group;
pub mod counted;
pub mod cuda;
pub mod desk;
pub mod entry_point;
pub mod exact;
pub mod fault;
pub mod holder;
pub mod job_control;
pub mod life;
pub mod network;
pub mod ordinary_user;
pub mod output;
pub mod podman;
pub mod processes;
pub mod product;
pub mod program;
pub mod scene;
pub mod store;
pub mod system_v;
pub mod taken_id;
pub mod until_done;
pub mod work;

pub use command::{Answer, Ckpt, checkpoint};
pub use desk::Desk;
pub use life::{Launch, Life, Restart, Stdout, code_of};
pub use program::Program;
pub use scene::{Scene, skip};
pub use store::{Row, Store};
