//! `ckpt show PID`: what a running program has allocated. The program is not stopped.

use std::fmt::Write;

use serde::Serialize;

use super::allocations::{self, AllocationView};
use super::view::lossy;
use crate::capture::{self, Program};
use crate::error::Result;
use crate::proc::{maps, task};
use crate::units::{self, printable};

/// A running program.
#[derive(Serialize)]
pub struct LiveView {
    pub pid: i32,
    pub name: String,
    pub executable: String,
    pub allocations: Vec<AllocationView>,
    /// How many there may be that could not be recorded.
    pub unrecorded: u64,
    /// How many functions of the CUDA driver the program has looked up that this ckpt does not know.
    pub unknown_entry_points: u64,
}

impl LiveView {
    /// The view of process `pid`, which must have libckpt.so loaded.
    pub fn of(pid: i32) -> Result<LiveView> {
        let program = Program::find(pid)?;
        let control = program.control()?;
        let found = capture::allocations(pid, &control)?;
        Ok(LiveView {
            pid,
            name: lossy(ckpt_wire::text(&control.name)),
            executable: lossy(&task::link(pid, "exe")?),
            allocations: allocations::views(&found.known, allocations::code_of_mappings(&maps::outline(pid)?), |_| {
                None
            }),
            unrecorded: found.lost,
            unknown_entry_points: found.unknown_entry_points,
        })
    }

    /// For people.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "Process {} ({})", self.pid, printable(&self.name));
        let _ = writeln!(text, "file      {}", printable(&self.executable));
        for (kind, count, bytes) in allocations::totals(&self.allocations) {
            let _ = writeln!(text, "{kind:9} {} in {count} allocations", units::bytes(bytes));
        }
        if self.unrecorded > 0 {
            let _ = writeln!(text, "missing   {} more, for whose records there was no room", self.unrecorded);
        }
        if self.unknown_entry_points > 0 {
            let _ = writeln!(
                text,
                "unknown   {} lookups of functions of a newer CUDA driver, which may allocate unseen",
                self.unknown_entry_points
            );
        }
        text.push_str("\nAllocations\n");
        text.push_str(&allocations::render(&self.allocations));
        text
    }
}
