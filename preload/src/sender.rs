//! Who has sent a signal: a process of the job, or somebody else.
//!
//! The trigger signal is a request for a checkpoint when it comes from outside. From another process of the job it means what the program
//! means by it, which has no handler for it: it ends the process. Erlang's runtime ends its resolvers so. What a process sends to itself
//! is a request, too.

use core::ffi::CStr;

use ckpt_wire::ENV_MARK;
use ckpt_wire::settings::text::Text;

use crate::control;
use crate::sys;

/// Ancestors that are looked at.
const ANCESTORS_MAX: u32 = 64;
/// Of `/proc/PID/environ` at a time. The stack may be small.
const PIECE: usize = 512;
/// `CKPT_MARK=` and 16 digits, and room.
const MARK_BYTES: usize = 64;

/// Whether a signal with these details was sent by another process of the job. It allocates nothing, takes no lock, and opens a file for
/// a moment.
pub fn is_of_job(details: &libc::siginfo_t) -> bool {
    let is_sent = matches!(details.si_code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
    // SAFETY: a signal that was sent has a sender.
    let pid = if is_sent { unsafe { details.si_pid() } } else { 0 };
    pid > 0 && pid != sys::getpid() && (descends_from_founder(pid) || has_mark(pid))
}

fn descends_from_founder(mut pid: i32) -> bool {
    // SAFETY: it does not change after the constructor.
    let founder = unsafe { (*control::control()).founder } as i32;
    for _ in 0..ANCESTORS_MAX {
        if pid <= 1 || founder <= 0 {
            return false;
        }
        if pid == founder {
            return true;
        }
        let Some(parent) = parent_of(pid) else { return false };
        pid = parent;
    }
    false
}

fn parent_of(pid: i32) -> Option<i32> {
    let mut text = [0; PIECE];
    let bytes = sys::read_file(path(pid, b"/stat").as_c_str()?, 0, &mut text).ok()?;
    let text = text.get(..bytes)?;
    // The name in parentheses may hold anything.
    let behind = text.iter().rposition(|byte| *byte == b')')?;
    let mut words = text.get(behind + 1..)?.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let parent = words.nth(1)?;
    parent.iter().try_fold(0_i32, |number, digit| {
        let digit = i32::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Whether its environment has the job's mark, which whoever was executed in the job has.
fn has_mark(pid: i32) -> bool {
    // SAFETY: it does not change after the constructor.
    let mark = unsafe { (*control::control()).mark };
    if mark == 0 {
        return false;
    }
    let mut wanted = Text::<MARK_BYTES>::new();
    wanted.push(ENV_MARK.as_bytes()).push(b"=").push_hex(mark, 16);
    let wanted = wanted.as_bytes();
    let path = path(pid, b"/environ");
    let Some(path) = path.as_c_str() else { return false };
    let (mut piece, mut offset) = ([0; PIECE], 0);
    while let Ok(bytes) = sys::read_file(path, offset, &mut piece) {
        if (0..bytes).any(|at| piece.get(at..at + wanted.len()).is_some_and(|part| part == wanted)) {
            return true;
        }
        if bytes <= wanted.len() {
            return false;
        }
        // What lies across two pieces is whole in the second.
        offset += bytes - wanted.len();
    }
    false
}

/// `/proc/PID` and a name, with a zero behind.
struct Path(Text<32>);

impl Path {
    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.0.as_bytes()).ok()
    }
}

fn path(pid: i32, name: &[u8]) -> Path {
    let mut text = Text::new();
    text.push(b"/proc/").push_decimal(u64::from(pid.unsigned_abs()), 1).push(name).push(b"\0");
    Path(text)
}
