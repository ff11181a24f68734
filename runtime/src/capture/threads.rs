//! Capturing what belongs to threads.

use ckpt_wire::Control;
use serde_bytes::ByteBuf;

use super::guest::{Guest, Seat};
use super::syscalls;
use super::waiting_calls::WaitingCalls;
use crate::error::{Error, Result};
use crate::image::{AlternateStack, Rseq, Scheduling, ThreadImage};
use crate::proc::task;
use crate::ptrace::{Registers, RseqConfiguration, SIGINFO_BYTES, Stopped, abort_handler, read_memory};

const SS_ONSTACK: i32 = 1;
const PR_GET_TID_ADDRESS: u64 = 40;
const PR_GET_TIMERSLACK: u64 = libc::PR_GET_TIMERSLACK as u64;

/// A stopped thread with the registers that it goes on with.
#[derive(Debug)]
pub struct Captured {
    /// Registers as the stop found them, or at the abort handler if that was in a restartable sequence.
    now: Registers,
    rseq: Option<RseqConfiguration>,
    /// Registers to put back when the program goes on.
    pub home: Registers,
    /// Registers that issue an interrupted call again, here or in another process: what the stub's frame holds, and what is
    /// stored.
    pub reissued: Registers,
}

impl Captured {
    /// Puts the thread on its way home, if the stop has led it astray.
    ///
    /// # Errors
    /// When the thread has gone.
    pub fn lead_home(&self, thread: &Stopped) -> Result<()> {
        if self.is_led() { thread.set_registers(&self.home) } else { Ok(()) }
    }

    /// Has `thread` of process `pid`, which has been led home, go on with its call where `control` says that calls are resumed.
    ///
    /// # Errors
    /// When the thread has gone.
    pub fn resume_call(&self, pid: i32, thread: &Stopped, control: &Control, calls: &mut WaitingCalls) -> Result<()> {
        if !self.is_led() || self.home.0.rip == self.now.0.rip {
            return Ok(());
        }
        thread.set_registers(&calls.resuming(pid, thread.tid(), control, &self.now, self.now.reissuing(true)))
    }

    /// Whether it does not go home by itself.
    fn is_led(&self) -> bool {
        self.now.broken_by_stop()
    }
}

/// A signal number's bit in a mask.
fn bit(siginfo: &[u8; SIGINFO_BYTES]) -> u64 {
    let signal = i32::from_ne_bytes([siginfo[0], siginfo[1], siginfo[2], siginfo[3]]);
    if (1..=64).contains(&signal) { 1 << (signal - 1) } else { 0 }
}

/// The signals among `queued` as a mask.
pub fn mask_of(queued: &[[u8; SIGINFO_BYTES]]) -> u64 {
    queued.iter().fold(0, |mask, siginfo| mask | bit(siginfo))
}

/// Siginfos for the image.
pub fn stored(queued: &[[u8; SIGINFO_BYTES]]) -> Vec<ByteBuf> {
    queued.iter().map(|siginfo| ByteBuf::from(siginfo.to_vec())).collect()
}

/// Finds out how `thread` of process `pid` goes on; `process_signals` are those queued for the process as a whole, `calls` what
/// is known of earlier stops.
///
/// # Errors
/// When it is just coming back from an agent that has died.
pub fn way_home(
    pid: i32,
    thread: &Stopped,
    control: &Control,
    process_signals: u64,
    calls: &mut WaitingCalls,
) -> Result<Captured> {
    let rseq = thread.rseq_configuration()?;
    let now = aborted(pid, thread.registers()?, rseq.as_ref());
    if now.0.rip >= control.stub_start && now.0.rip < control.stub_end {
        return Err(Error::environment(
            format!("stopping process {pid}"),
            format!("thread {} is still finishing a call that an agent left behind when it died", thread.tid()),
            "try again in a moment",
        ));
    }
    // EINTR from our own stop is repaired, but not when a signal is about to interrupt the call anyway: its
    // handler may have to be followed by EINTR.
    let signal_is_due = (mask_of(&thread.queued_signals()?) | process_signals) & !thread.signal_mask()? != 0;
    let reissued = calls.resuming(pid, thread.tid(), control, &now, now.reissuing(!signal_is_due));
    let home = if now.broken_by_stop() && !signal_is_due { reissued } else { now };
    Ok(Captured { now, rseq, home, reissued })
}

/// Registers by which a thread that has been stopped within a restartable sequence goes on at its abort handler.
fn aborted(pid: i32, mut now: Registers, rseq: Option<&RseqConfiguration>) -> Registers {
    // No sequence makes a call.
    let Some(rseq) = rseq.filter(|_| now.waiting_call().is_none()) else { return now };
    match abort_handler(rseq.address, now.0.rip, |address, into| read_memory(pid, address, into)) {
        Ok(Some(abort)) => now.0.rip = abort,
        Ok(None) => {}
        Err(error) => log::debug!("process {pid}: a restartable sequence cannot be read: {error}"),
    }
    now
}

/// Captures `threads` of process `pid`; `process_signals` and `calls` are as for [`way_home`].
pub fn capture_all(
    pid: i32,
    threads: &mut [Stopped],
    control: &Control,
    process_signals: u64,
    calls: &mut WaitingCalls,
) -> Result<(Vec<ThreadImage>, Vec<Captured>)> {
    let (mut images, mut ways) = (Vec::with_capacity(threads.len()), Vec::with_capacity(threads.len()));
    let seats = Seat::of(threads.len(), control);
    for threads in threads.chunks_mut(seats.len()) {
        let first = ways.len();
        for thread in threads.iter() {
            ways.push(way_home(pid, thread, control, process_signals, calls)?);
        }
        let ways = &ways[first..];
        let outer = threads.iter().zip(ways).map(|(thread, way)| from_outside(pid, thread, way));
        let mut outer = outer.collect::<Result<Vec<_>>>()?;
        let mut guests = Vec::with_capacity(threads.len());
        for ((thread, way), seat) in threads.iter_mut().zip(ways).zip(&seats) {
            guests.push(Guest::enter_at(*seat, pid, thread, control, way.home, &way.reissued)?);
        }
        from_inside(&mut guests, &mut outer)?;
        guests.into_iter().try_for_each(Guest::leave)?;
        images.extend(outer);
    }
    Ok((images, ways))
}

/// What can be learned of a thread without running it.
fn from_outside(pid: i32, thread: &Stopped, way: &Captured) -> Result<ThreadImage> {
    let tid = thread.tid();
    let mut name = task::bytes(pid, &format!("task/{tid}/comm"))?;
    name.pop();
    Ok(ThreadImage {
        tid,
        name,
        registers: way.reissued.to_words().to_vec(),
        waiting_call: way.now.waiting_call(),
        extended_state: thread.extended_state()?,
        signal_mask: thread.signal_mask()?,
        queued_signals: stored(&thread.queued_signals()?),
        alternate_stack: AlternateStack::default(),
        clear_child_tid: 0,
        robust_list: syscalls::robust_list(tid)?,
        rseq: way.rseq.map(|rseq| Rseq { address: rseq.address, bytes: rseq.bytes, signature: rseq.signature }),
        scheduling: scheduling(pid, tid)?,
        filters: Vec::new(),
    })
}

fn scheduling(pid: i32, tid: i32) -> Result<Scheduling> {
    let scheduling = syscalls::scheduling(tid)?;
    if scheduling.policy == libc::SCHED_DEADLINE as u32 {
        return Err(Error::unsupported(
            format!("process {pid}: thread {tid} under SCHED_DEADLINE"),
            "its deadlines are not captured yet",
            "give it another policy before the checkpoint",
        ));
    }
    Ok(scheduling)
}

/// Adds to `images` what only the threads themselves can say.
fn from_inside(guests: &mut [Guest<'_>], images: &mut [ThreadImage]) -> Result<()> {
    Guest::call_in_all(guests, "sigaltstack", "reading the alternate stack", libc::SYS_sigaltstack, |scratch| {
        [0, scratch, 0, 0, 0, 0]
    })?;
    for (guest, image) in guests.iter().zip(images.iter_mut()) {
        image.alternate_stack = alternate_stack(&guest.read_scratch()?);
    }
    Guest::call_in_all(guests, "prctl", "reading the tid address", libc::SYS_prctl, |scratch| {
        [PR_GET_TID_ADDRESS, scratch, 0, 0, 0, 0]
    })?;
    for (guest, image) in guests.iter().zip(images.iter_mut()) {
        image.clear_child_tid = u64::from_ne_bytes(guest.read_scratch()?);
    }
    if images.iter().all(|image| image.scheduling.timer_slack_ns != 0) {
        return Ok(());
    }
    // Others may not read it without CAP_SYS_NICE.
    let slacks = Guest::call_in_all(guests, "prctl", "reading the timer slack", libc::SYS_prctl, |_| {
        [PR_GET_TIMERSLACK, 0, 0, 0, 0, 0]
    })?;
    for (image, slack) in images.iter_mut().zip(slacks) {
        image.scheduling.timer_slack_ns = slack;
    }
    Ok(())
}

/// What `sigaltstack` has written.
fn alternate_stack(bytes: &[u8; 24]) -> AlternateStack {
    let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    AlternateStack { address: word(0), flags: word(8) as u32 as i32 & !SS_ONSTACK, bytes: word(16) }
}
