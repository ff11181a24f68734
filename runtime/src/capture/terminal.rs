//! Capturing the program's terminal: its modes and its size.
//!
//! A terminal's modes belong to whoever has its foreground, and nothing says which process of that group has set them.
//! They are taken for the program's where it had the foreground and could both read and print there; a program that
//! only prints into a pager has not made the terminal raw. What cannot be found out is left out: no checkpoint fails
//! because of a terminal.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::stat::{fstat, major, makedev, minor};

use super::descriptors::table::Table;
use super::sent::Source;
use crate::image::{Descriptor, FileKind, OpenFile, TerminalImage, TerminalModes};
use crate::proc::task::{self, stat_number};
use crate::tty;

/// `/dev/tty`: whichever terminal controls the process that opens it.
const OWN: (u64, u64) = (5, 0);

/// The terminal of the stopped process `pid`, whose descriptors are `table` and lead to `files`.
pub fn capture(pid: i32, source: Source<'_>, table: &Table, files: &[OpenFile]) -> Option<TerminalImage> {
    let outside = leading_outside(table, files);
    if outside.is_empty() {
        return None;
    }
    let job = Job::of(pid)?;
    let opened = outside.iter().filter_map(|(was, numbers)| Opened::look(source, was, numbers, &job));
    let mut found: Vec<Opened<'_>> = opened.collect();
    let place = found.iter().position(|it| it.controlling);
    let place = place.or_else(|| found.iter().position(|it| it.numbers.iter().any(|&number| number <= 2)))?;
    let mut chosen = found.swap_remove(place);
    if chosen.controlling {
        let also = found.iter().filter(|it| it.controlling).flat_map(|it| &it.numbers);
        chosen.numbers.extend(also.copied().collect::<Vec<_>>());
    }
    Some(chosen.image(&job))
}

/// The numbers of all descriptors that lead outside, by where they lead.
fn leading_outside<'a>(table: &Table, files: &'a [OpenFile]) -> BTreeMap<&'a [u8], Vec<i32>> {
    let mut outside: BTreeMap<&[u8], Vec<i32>> = BTreeMap::new();
    for Descriptor { number, file, .. } in &table.descriptors {
        if let Some(FileKind::Standard { was, .. }) = files.get(*file as usize).map(|file| &file.kind) {
            outside.entry(was.as_slice()).or_default().push(*number);
        }
    }
    outside
}

/// What a process has to do with its controlling terminal.
struct Job {
    /// Device of the terminal (major, minor); none without.
    terminal: Option<(u64, u64)>,
    /// Whether its process group is the foreground there.
    in_foreground: bool,
    /// The process group that is.
    foreground: i32,
}

impl Job {
    fn of(pid: i32) -> Option<Job> {
        const GROUP: usize = 5;
        const TERMINAL: usize = 7;
        const FOREGROUND: usize = 8;
        let stat = task::stat_fields(pid, "stat").ok()?;
        let device = stat_number(&stat, TERMINAL);
        // As in the kernel's new_encode_dev.
        let device_numbers = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00));
        let foreground = stat_number(&stat, FOREGROUND) as i32;
        let in_foreground = stat_number(&stat, GROUP) as i32 == foreground;
        Some(Job { terminal: Some(device_numbers).filter(|_| device != 0), in_foreground, foreground })
    }
}

/// A terminal that the program has open.
struct Opened<'a> {
    was: &'a [u8],
    numbers: Vec<i32>,
    descriptor: OwnedFd,
    controlling: bool,
}

impl<'a> Opened<'a> {
    /// None if it is no terminal.
    fn look(source: Source<'_>, was: &'a [u8], numbers: &[i32], job: &Job) -> Option<Opened<'a>> {
        let descriptor = source.fetch(*numbers.first()?).ok()?;
        // SAFETY: isatty takes a number.
        if unsafe { libc::isatty(descriptor.as_raw_fd()) } != 1 {
            return None;
        }
        let device = fstat(&descriptor).ok()?.st_rdev;
        let is_own = device == makedev(OWN.0, OWN.1);
        let controlling = job.terminal.is_some_and(|own| is_own || own == (major(device), minor(device)));
        Some(Opened { was, numbers: numbers.to_vec(), descriptor, controlling })
    }

    fn image(&self, job: &Job) -> TerminalImage {
        let (rows, columns) = tty::size(&self.descriptor).unwrap_or_default();
        let is_the_programs = self.controlling && job.in_foreground && works_there(&self.numbers);
        let modes = if is_the_programs { tty::modes(&self.descriptor).ok() } else { None };
        let modes = modes.map(|modes| TerminalModes {
            input: modes.c_iflag,
            output: modes.c_oflag,
            local: modes.c_lflag,
            characters: modes.c_cc.to_vec(),
        });
        let foreground = Some(job.foreground).filter(|&group| self.controlling && group > 0);
        TerminalImage { was: self.was.to_vec(), controlling: self.controlling, modes, rows, columns, foreground }
    }
}

/// Whether a program that has the terminal at `numbers` both reads and prints there. Above 2 it has opened it itself.
fn works_there(numbers: &[i32]) -> bool {
    let has = |stream: i32| numbers.iter().any(|&number| number == stream || number > 2);
    has(0) && has(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_prints_into_a_pipe_does_not_work_at_the_terminal_unless_it_has_opened_it_itself() {
        assert!(works_there(&[0, 1, 2]));
        assert!(works_there(&[0, 1]));
        assert!(!works_there(&[0, 2]));
        assert!(!works_there(&[1, 2]));
        assert!(works_there(&[2, 3]));
    }
}
