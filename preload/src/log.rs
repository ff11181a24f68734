//! One line at a time into the log file, for what the user must know and the agent is not there to say.
//!
//! The file is opened, written and closed by a child with a descriptor table of its own, so that no number of
//! the program is used even for an instant (a program may close all descriptors, or count on the next one).
//! Failure is ignored: there is nobody to tell.

use ckpt_wire::PATH_BYTES;

use crate::child;
use crate::control;
use crate::section::Section;
use crate::shared::Shared;
use crate::sys::{self, in_child};
use ckpt_wire::settings::text::{Text, write_field};

/// Bytes of a line, its end included.
const LINE_BYTES: usize = PATH_BYTES + 512;
/// Name of the log in the store's directory.
const FILE_NAME: &[u8] = b"/log";
/// Only the owner reads the log and the store.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A line.
pub type Line = Text<LINE_BYTES>;

/// What the child gets. Used by the holder of the section and its child.
struct Entry {
    line: Line,
    /// The store's directory, to be made if it is missing; empty when the user named a log file.
    dir: [u8; PATH_BYTES],
    path: [u8; PATH_BYTES + FILE_NAME.len()],
}

static ENTRY: Shared<Entry> =
    Shared::new(Entry { line: Line::new(), dir: [0; PATH_BYTES], path: [0; PATH_BYTES + FILE_NAME.len()] });

/// Appends the line that `write` composes, with time and pid in front of it.
pub fn append(section: &mut Section, write: impl FnOnce(&mut Line)) {
    // SAFETY: the section is ours, and the child of an earlier line has ended.
    let entry = unsafe { &mut *ENTRY.get() };
    // SAFETY: these do not change after the constructor.
    let (dir, log, founder) = unsafe {
        let control = &*control::control();
        (&control.dir, &control.log, control.founder)
    };
    let fits = match ckpt_wire::text(log) {
        [] => {
            let dir = ckpt_wire::text(dir);
            // The store is the user's who has started the job: another process of it, perhaps somebody else's by now, makes none.
            let is_founder = founder == 0 || founder == u64::from(sys::getpid().unsigned_abs());
            let made = if is_founder { dir } else { &[] };
            write_field(&mut entry.dir, &[made]) && write_field(&mut entry.path, &[dir, FILE_NAME])
        }
        path => write_field(&mut entry.dir, &[]) && write_field(&mut entry.path, &[path]),
    };
    if !fits {
        return;
    }
    entry.line.clear();
    push_time(&mut entry.line, sys::seconds_since_1970());
    entry.line.push(b" libckpt[").push_decimal(u64::from(sys::getpid().unsigned_abs()), 1).push(b"] ");
    write(&mut entry.line);
    // Names in it may hold anything.
    entry.line.make_printable().push(b"\n");
    // SAFETY: the entry is complete and stays, being a static, and nobody writes it while the child runs.
    let _ = unsafe { child::run(section, write_entry, core::ptr::from_ref(entry)) };
}

/// The child.
///
/// # Safety
/// `entry` must stay as it is until the child has ended.
unsafe extern "C" fn write_entry(entry: *const Entry) -> ! {
    // SAFETY: the caller's word.
    let entry = unsafe { &*entry };
    // O_NONBLOCK: a pipe that somebody put there must not stop the program.
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // SAFETY: `write_field` ends paths with a zero; the child was cloned without CLONE_FILES.
    let open = || unsafe { in_child::open(entry.path.as_ptr(), flags, FILE_MODE) };
    let mut file = open();
    if file.is_err() && !ckpt_wire::text(&entry.dir).is_empty() {
        // SAFETY: as for `open`.
        let _ = unsafe { in_child::make_directory(entry.dir.as_ptr(), DIRECTORY_MODE) };
        file = open();
    }
    if let Ok(fd) = file
        && in_child::is_file_of_ours(fd)
    {
        let _ = in_child::write(fd, entry.line.as_bytes());
    }
    sys::exit(0)
}

/// `2026-11-20T22:01:02Z`
fn push_time(line: &mut Line, seconds: u64) {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    line.push_decimal(year, 4).push(b"-").push_decimal(month, 2).push(b"-").push_decimal(day, 2);
    line.push(b"T").push_decimal(of_day / 3_600, 2).push(b":").push_decimal(of_day / 60 % 60, 2);
    line.push(b":").push_decimal(of_day % 60, 2).push(b"Z");
}

/// Year, month and day, `days` after 1970-01-01: years that begin in March, in cycles of 400 (Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}
