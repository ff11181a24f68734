//! Timers of `timer_create`.

use serde::{Deserialize, Serialize};

/// A timer of `timer_create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PosixTimer {
    /// Its id.
    pub id: i32,
    /// `CLOCK_*`.
    pub clock: i32,
    /// `SIGEV_*`: what happens when it expires.
    pub notify: i32,
    /// The thread that is told, under `SIGEV_THREAD_ID`.
    pub tid: i32,
    /// The signal, where there is one.
    pub signal: i32,
    /// What comes with the signal.
    pub value: u64,
    /// Period, ns; 0 = once.
    pub interval_ns: u64,
    /// Time to the next expiry, ns; 0 = not running.
    pub left_ns: u64,
}
