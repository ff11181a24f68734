//! The clocks that begin anew when a machine boots.

use serde::{Deserialize, Serialize};

/// What a program's clocks showed at its checkpoint, or what those of this process show now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: u64,
    /// `CLOCK_BOOTTIME`, ns.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME`, ns since 1970.
    pub realtime_ns: u64,
    /// How far the first two are ahead of the machine's: what the time namespace adds.
    pub ahead: ClockOffsets,
    /// Which boot of which machine it was (`/proc/sys/kernel/random/boot_id`); empty if that cannot be read.
    pub boot_id: String,
}

/// What a time namespace adds to the clocks of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffsets {
    /// To `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: i64,
    /// To `CLOCK_BOOTTIME`, ns.
    pub boottime_ns: i64,
}
