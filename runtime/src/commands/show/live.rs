//! `ckpt show PID`: what a running program has allocated. The program is not stopped.

use std::fmt::Write;

use serde::Serialize;

use super::allocations::{self, AllocationView};
use super::view::lossy;
use crate::capture::{Program, heap};
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
}

impl LiveView {
    /// The view of process `pid`, which must have libckpt.so loaded.
    pub fn of(pid: i32) -> Result<LiveView> {
        let program = Program::find(pid)?;
        let control = program.control()?;
        let heap = heap(pid, &control)?;
        Ok(LiveView {
            pid,
            name: lossy(ckpt_wire::text(&control.name)),
            executable: lossy(&task::link(pid, "exe")?),
            allocations: allocations::views(&heap.allocations, allocations::code_of_mappings(&maps::outline(pid)?)),
            unrecorded: heap.lost,
        })
    }

    /// For people.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let bytes = self.allocations.iter().map(|allocation| allocation.bytes).sum();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "Process {} ({})", self.pid, printable(&self.name));
        let _ = writeln!(text, "file      {}", printable(&self.executable));
        let _ = writeln!(text, "host      {}, {} large allocations", units::bytes(bytes), self.allocations.len());
        if self.unrecorded > 0 {
            let _ = writeln!(text, "unrecorded {} more: there was no room for their records", self.unrecorded);
        }
        text.push_str("\nAllocations\n");
        text.push_str(&allocations::render(&self.allocations));
        text
    }
}
