//! The runtime of ckpt: everything that is not loaded into the program.
//!
//! Layers, downward only: [`commands`] use [`agent`], [`restore`] and [`parent`]; the agent uses [`capture`], which
//! writes an [`image`] and pages into the store, and has [`restore`], which reads them, look at an image before it is sealed. Capture
//! and restore stand on [`ptrace`] and [`proc`] and do not know each other.

// What is said goes through `messages` and `commands::print`, which filter it.
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("ckpt supports Linux on x86-64 only");

pub mod agent;
pub mod apart;
pub mod audit;
pub mod capabilities;
pub mod capture;
pub mod commands;
pub mod core_dumps;
pub mod descriptor;
pub mod device_code;
pub mod differences;
pub mod error;
pub mod evacuation;
pub mod fault;
pub mod file_stamp;
pub mod filtered;
pub mod host;
pub mod image;
pub mod io_uring;
pub mod keeper;
pub mod linkage;
pub mod location;
pub mod logging;
pub mod managed_trial;
pub mod mapped_files;
pub mod messages;
pub mod mqueue;
pub mod namespace;
pub mod net;
pub mod outlet;
pub mod packets;
pub mod page_set;
pub mod parent;
pub mod proc;
pub mod pseudo_terminal;
pub mod ptrace;
pub mod restore;
pub mod rights;
pub mod saved_name;
pub mod signal_mask;
pub mod sparse;
pub mod stillness;
pub mod store_key;
pub mod stored_content;
pub mod stored_file;
pub mod stored_memory;
pub mod survey;
pub mod tty;
pub mod units;
pub mod unread_bytes;
pub mod userfaultfd;
pub mod without_links;
