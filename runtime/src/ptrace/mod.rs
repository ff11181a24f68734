//! Control over another process's threads, by ptrace.
//!
//! A thread under control is either [`Running`] or [`Stopped`]; what needs a stopped thread is a method of
//! `Stopped`, so it cannot be called on a running one. Neither type can be copied, and a `Stopped` that is
//! dropped lets its thread go: an error anywhere leaves the program running. The kernel does the same when the
//! tracer dies, because `PTRACE_O_EXITKILL` is never set on a program, only on its twin.
//!
//! All requests must come from the thread that seized; nothing here may be moved to another.

mod memory;
mod pin;
mod registers;
mod remote_call;
mod request;
mod rseq;
mod thread;

pub use memory::{ProcessMemory, is_read_by_call, read_memory, say_slow_way, write_memory};
pub use pin::Pinned;
pub use registers::{RED_ZONE_BYTES, Registers, SYS_IO_PGETEVENTS, SYSCALL_BYTES};
pub use remote_call::{CallOf, CallOutcome, CallSite, remote_call, remote_calls, remote_clone, run_code};
pub use request::{RseqConfiguration, SIGINFO_BYTES};
pub use rseq::abort_handler;
pub use thread::{Options, Running, StopCause, Stopped, wait_until_gone};
