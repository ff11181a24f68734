//! The runtime of ckpt: everything that is not loaded into the program.
//!
//! Layers, downward only: `commands` use `agent`, `capture` and `restore`; `capture` writes an [`image`] and pages
//! into the store, `restore` reads them; both stand on [`ptrace`] and [`proc`]. `capture` and `restore` do not know
//! each other.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("ckpt supports Linux on x86-64 only");

pub mod agent;
pub mod commands;
pub mod error;
pub mod fault;
pub mod image;
pub mod parent;
pub mod ptrace;
pub mod restore;
