//! What was in pieces: it is read from the store while the driver is at work, and copied there by the process's keeper.
//!
//! A driver that gives devices back takes seconds. What has been read by then only needs to be copied; so as much is read ahead as
//! the host has room for.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use ckpt_store::Store;
use ckpt_wire::device::{COMMAND_BUFFER, COMMAND_COPY, COMMAND_FILLED, Command};

use crate::differences::{Differences, WINDOW_BYTES};
use crate::error::Result;
use crate::image::{PieceImage, StoredPieces};
use crate::keeper::{Line, command};
use crate::proc::memory;
use crate::ptrace::ProcessMemory;

/// Bytes that are read ahead for a job, at most.
const AHEAD_BYTES_MAX: u64 = 1 << 30;
/// And for each process in any case.
const AHEAD_BYTES_MIN: u64 = 4 * WINDOW_BYTES as u64;

/// Bytes that are read ahead for each of so many processes: together not more than a quarter of what the host has
/// left, or we may have of it.
pub fn ahead_bytes(processes: usize) -> u64 {
    share_of(memory::available_bytes_to(std::process::id() as i32).unwrap_or(0), processes)
}

fn share_of(available: u64, processes: usize) -> u64 {
    ((available / 4).min(AHEAD_BYTES_MAX) / processes.max(1) as u64).max(AHEAD_BYTES_MIN)
}

/// Content of the pieces of a process, while it is being read.
pub struct Content<'scope> {
    windows: Receiver<Window>,
    reader: ScopedJoinHandle<'scope, Result<()>>,
}

/// A part of a piece.
struct Window {
    device: i32,
    address: u64,
    bytes: Vec<u8>,
}

impl<'scope> Content<'scope> {
    /// Begins to read what was in these pieces, at most so many bytes ahead; nothing if there are none.
    pub fn read<'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        store: &'a Store,
        pieces: &'a [StoredPieces],
        ahead_bytes: u64,
    ) -> Option<Content<'scope>> {
        let (sender, windows) = sync_channel((ahead_bytes / WINDOW_BYTES as u64) as usize);
        let read = move || pieces.iter().try_for_each(|stored| read(store, stored, &sender));
        (!pieces.is_empty()).then(|| Content { windows, reader: scope.spawn(read) })
    }

    /// Has the keeper put it where it was; `filled` is told the bytes of each part.
    ///
    /// # Errors
    /// The store's; when the keeper does not do it.
    pub fn put(self, line: &Line<'_>, memory: &ProcessMemory, filled: &mut dyn FnMut(u64)) -> Result<()> {
        let outcome = copy_all(self.windows, line, memory, filled);
        // A panic aborts the process (see Cargo.toml), so a thread that ended has a result.
        let read = self.reader.join().unwrap_or_else(|_| std::process::abort());
        outcome.and(read)?;
        line.exchange(command(COMMAND_FILLED)).and_then(|answer| line.good("letting memory be used", answer)).map(drop)
    }
}

fn read(store: &Store, stored: &StoredPieces, windows: &SyncSender<Window>) -> Result<()> {
    let differences = Differences::read_all(&stored.differences, store)?;
    for &PieceImage { id, address, bytes } in &stored.pieces {
        for offset in (0..bytes).step_by(WINDOW_BYTES) {
            let mut content = vec![0; (bytes - offset).min(WINDOW_BYTES as u64) as usize];
            differences.read(store, id, offset, &mut content, None)?;
            let window = Window { device: stored.device, address: address + offset, bytes: content };
            if windows.send(window).is_err() {
                // Nobody wants it any more: it is said there why.
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Copies what comes, until no more comes. If that fails nobody reads any more.
fn copy_all(
    windows: Receiver<Window>,
    line: &Line<'_>,
    memory: &ProcessMemory,
    filled: &mut dyn FnMut(u64),
) -> Result<()> {
    let answer = line.exchange(Command { bytes: WINDOW_BYTES as u64, ..command(COMMAND_BUFFER) })?;
    let buffer = line.good("making room for what comes to a device", answer)?.values[0];
    for Window { device, address, bytes } in windows {
        memory.write(buffer, &bytes)?;
        let copy = Command { device, address: buffer, to: address, bytes: bytes.len() as u64, ..command(COMMAND_COPY) };
        let answer = line.exchange(copy)?;
        line.good("copying to a device", answer)?;
        filled(bytes.len() as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_read_ahead_as_the_host_has_room_for() {
        const GIB: u64 = 1 << 30;
        assert_eq!(share_of(64 * GIB, 1), GIB);
        assert_eq!(share_of(64 * GIB, 4), GIB / 4);
        assert_eq!(share_of(2 * GIB, 1), GIB / 2);
        assert_eq!([share_of(0, 1), share_of(GIB, 100)], [AHEAD_BYTES_MIN; 2]);
        assert!(ahead_bytes(1) >= AHEAD_BYTES_MIN && ahead_bytes(0) <= AHEAD_BYTES_MAX);
    }
}
