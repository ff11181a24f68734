//! The mark of a job, by which a process belongs to it that has lost its parent.
//!
//! The first process of a job makes it, and adds it to the environment that programs inherit from it, with room for the pid of
//! the job's agent: a program that is executed in the job need not start one to find out that there is one. Nothing is
//! allocated: the environment gets a static list of pointers, if it fits in.

use core::ffi::c_char;
use core::sync::atomic::{AtomicU8, Ordering};

use ckpt_wire::settings::text::Text;
use ckpt_wire::{CONFINEMENT_BYTES, Confinement, Control, ENV_AGENT_PID, ENV_CONFINEMENT, ENV_MARK, PID_DIGITS};

use crate::environment::Entries;
use crate::shared::Shared;
use crate::sys;

/// Most entries of an environment that ours are added to.
const ENTRIES_MAX: usize = 1000;
/// `CKPT_AGENT_PID=` and the digits.
const AGENT_BYTES: usize = ENV_AGENT_PID.len() + 1 + PID_DIGITS;

unsafe extern "C" {
    /// Where the C library looks for the environment, and what it gives to `main`.
    static mut environ: *const *const c_char;
}

/// What the environment of a job's first process gets. Written by the constructor; the digits also by whoever knows better.
struct Added {
    entries: [*const c_char; ENTRIES_MAX + 4],
    mark: Text<64>,
    confinement: Text<{ ENV_CONFINEMENT.len() + CONFINEMENT_BYTES + 2 }>,
    agent: [u8; AGENT_BYTES + 1],
}

static ADDED: Shared<Added> = Shared::new(Added {
    entries: [core::ptr::null(); ENTRIES_MAX + 4],
    mark: Text::new(),
    confinement: Text::new(),
    agent: [0; AGENT_BYTES + 1],
});

/// Where the C library has the environment.
pub fn environment() -> *const *const c_char {
    // SAFETY: it is read as the C library has it, at the start of the program.
    unsafe { environ }
}

/// Where that pointer is, which a restart changes that makes a copy.
pub fn place_of_environment() -> *const *const *const c_char {
    &raw const environ
}

/// Has this process belong to the job that its environment names, or begins a job.
pub fn take(entries: Entries<'_>, control: &mut Control) {
    let known = entries.into_iter().find(|entry| value_of_agent(entry).is_some());
    control.agent_text = known.and_then(value_of_agent).map_or(0, |digits| digits.as_ptr() as u64);
    let known = entries.into_iter().find_map(value_of_confinement);
    control.confinement_text = known.map_or(0, |value| value.as_ptr() as u64);
    match (control.mark, control.founder) {
        (0, _) => begin(control),
        (_, 0) => found(entries, control),
        _ => {}
    }
}

/// Begins the job that `ckpt run` has made a mark for, without knowing this process.
fn found(entries: Entries<'_>, control: &mut Control) {
    let name = ENV_MARK.as_bytes();
    let is_mark = |entry: &&[u8]| entry.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="));
    let digits = entries.into_iter().find(is_mark).and_then(|entry| entry.last_chunk::<PID_DIGITS>());
    let Some(digits) = digits.filter(|digits| digits.iter().all(|digit| *digit == b'0')) else { return };
    control.founder = u64::from(sys::getpid().unsigned_abs());
    let mut text = Text::<{ PID_DIGITS + 1 }>::new();
    text.push_decimal(control.founder, PID_DIGITS);
    write_over(digits.as_ptr() as usize, text.as_bytes());
}

/// Writes over a part of an entry of the environment.
fn write_over(from: usize, bytes: &[u8]) {
    for (place, byte) in bytes.iter().enumerate() {
        // SAFETY: by the callers, the entry is there, and writable as all of the environment. Whoever reads it meanwhile finds a
        // pid that nobody has, or somebody who is no agent.
        unsafe { AtomicU8::from_ptr((from + place) as *mut u8) }.store(*byte, Ordering::Relaxed);
    }
}

/// Begins a job.
fn begin(control: &mut Control) {
    let mut random = [0; 8];
    if !sys::random(&mut random) {
        return;
    }
    let pid = u64::from(sys::getpid().unsigned_abs());
    (control.mark, control.marked_job, control.founder) = (u64::from_ne_bytes(random), control.job, pid);
    if control.filters == 0 {
        control.set_confinement(own_confinement());
    }
    // SAFETY: written here only, by the one run of the constructor.
    let added = unsafe { &mut *ADDED.get() };
    added.mark.push(ENV_MARK.as_bytes()).push(b"=").push_hex(control.mark, 16).push(b"-");
    added.mark.push_hex(control.marked_job, 16).push(b"-").push_decimal(pid, PID_DIGITS);
    // SAFETY: constructors run one after the other, and nobody else has a reference to the list.
    let mut next = unsafe { environ };
    let mut count = 0;
    // SAFETY: the environment is a list of pointers that ends with a null.
    while let Some(entry) = unsafe { next.as_ref() }.copied().filter(|entry| !entry.is_null()) {
        // Larger ones stay as they are: then only forks have the mark.
        let Some(slot) = added.entries.get_mut(..ENTRIES_MAX).and_then(|slots| slots.get_mut(count)) else { return };
        *slot = entry;
        count += 1;
        next = next.wrapping_add(1);
    }
    let mut add = |entry: *const c_char| {
        if let Some(slot) = added.entries.get_mut(count) {
            *slot = entry;
            count += 1;
        }
    };
    add(added.mark.as_ptr().cast());
    if let (0, Some(confinement)) = (control.confinement_text, control.confinement()) {
        let name = ENV_CONFINEMENT.as_bytes();
        added.confinement.push(name).push(b"=").push(confinement.to_text().as_bytes());
        control.confinement_text = added.confinement.as_ptr() as u64 + name.len() as u64 + 1;
        add(added.confinement.as_ptr().cast());
    }
    if control.agent_text == 0 {
        let name = ENV_AGENT_PID.as_bytes();
        for (slot, byte) in added.agent.iter_mut().zip(name.iter().chain(b"=").chain(&[b'0'; PID_DIGITS])) {
            *slot = *byte;
        }
        control.agent_text = added.agent.as_ptr() as u64 + name.len() as u64 + 1;
        add(added.agent.as_ptr().cast());
    }
    // SAFETY: as above; the list ends with a null and stays.
    unsafe { environ = added.entries.as_ptr() };
}

/// What confines this process. /proc is read only where something does, because it takes 20 microseconds.
fn own_confinement() -> Option<Confinement> {
    if sys::is_unconfined() {
        return Some(Confinement::default());
    }
    let mut status = [0; 4096];
    let read = sys::read_file(c"/proc/self/status", 0, &mut status).ok()?;
    Confinement::of_status(status.get(..read)?)
}

/// The value of an entry that says what confined the job's first process.
fn value_of_confinement(entry: &[u8]) -> Option<&[u8]> {
    let value = entry.strip_prefix(ENV_CONFINEMENT.as_bytes())?.strip_prefix(b"=")?;
    (value.len() == CONFINEMENT_BYTES).then_some(value)
}

/// The digits of an entry that says which agent the job has.
fn value_of_agent(entry: &[u8]) -> Option<&[u8]> {
    let value = entry.strip_prefix(ENV_AGENT_PID.as_bytes())?.strip_prefix(b"=")?;
    (value.len() == PID_DIGITS).then_some(value)
}

/// Tells programs that are executed from here on which agent the job has, unless they know one that lives. `digits` is
/// [`Control::agent_text`].
pub fn tell_agent(digits: u64, agent_pid: i32) {
    let name = ENV_AGENT_PID.as_bytes();
    let Some(from) = (digits as usize).checked_sub(name.len() + 1).filter(|_| digits != 0) else { return };
    let mut entry = [0; AGENT_BYTES];
    // A program may have put something else there since.
    let copied = sys::copy_what_is_there(entry.as_mut_ptr(), from as *const u8, AGENT_BYTES);
    let Some(value) = value_of_agent(&entry).filter(|_| copied == AGENT_BYTES) else { return };
    let known = ckpt_wire::settings::numbers::parse_decimal(value).and_then(|pid| i32::try_from(pid).ok());
    if known.is_none_or(sys::process_exists) {
        return;
    }
    let mut text = Text::<{ PID_DIGITS + 1 }>::new();
    text.push_decimal(u64::from(agent_pid.unsigned_abs()), PID_DIGITS);
    write_over(digits as usize, text.as_bytes());
}
