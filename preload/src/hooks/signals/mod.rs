//! Hooks over the functions that set signal actions, so that a program which touches the trigger signal keeps
//! working and stays checkpointable where that is possible.
//!
//! `shims` has the C functions, `actions` the decisions. A program that sends every signal back to its default
//! (node does at its start, shells do before they exec) keeps our handler, and sees the default, though without the
//! flags and mask that it gave it, which mean nothing there. A program that handles or ignores the trigger signal
//! gets what it asked for: its action displaces ours, the control block says so, and the log does once. All other
//! signals go straight to the real function.
//!
//! Not seen: actions set by raw system calls (the Go runtime), and programs that block the signal and take it with
//! `sigwait`. There the program's way wins, and the agent sees from outside that our handler is not in place.

mod actions;
mod shims;

pub use actions::watch;
