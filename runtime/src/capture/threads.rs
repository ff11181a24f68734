//! Capturing what belongs to threads.

use ckpt_wire::Control;
use serde_bytes::ByteBuf;

use super::guest::Guest;
use super::syscalls;
use super::waiting_calls::WaitingCalls;
use crate::error::{Error, Result};
use crate::image::{AlternateStack, Rseq, ThreadImage};
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

/// Captures `thread` of process `pid`; `process_signals` and `calls` are as for [`way_home`].
pub fn capture(
    pid: i32,
    thread: &mut Stopped,
    control: &Control,
    process_signals: u64,
    calls: &mut WaitingCalls,
) -> Result<(ThreadImage, Captured)> {
    let tid = thread.tid();
    let captured = way_home(pid, thread, control, process_signals, calls)?;
    let (signal_mask, queued) = (thread.signal_mask()?, thread.queued_signals()?);

    let extended_state = thread.extended_state()?;
    let mut guest = Guest::enter(pid, thread, control, captured.home, &captured.reissued)?;
    let alternate_stack = alternate_stack(&mut guest)?;
    let clear_child_tid: [u8; 8] = guest.call_into("prctl", "reading the tid address", libc::SYS_prctl, |scratch| {
        [PR_GET_TID_ADDRESS, scratch, 0, 0, 0, 0]
    })?;
    let mut scheduling = syscalls::scheduling(tid)?;
    if scheduling.policy == libc::SCHED_DEADLINE as u32 {
        return Err(Error::unsupported(
            format!("process {pid}: thread {tid} under SCHED_DEADLINE"),
            "its deadlines are not captured yet",
            "give it another policy before the checkpoint",
        ));
    }
    if scheduling.timer_slack_ns == 0 {
        // Others may not read it without CAP_SYS_NICE.
        let slack =
            guest.call("prctl", "reading the timer slack", libc::SYS_prctl, [PR_GET_TIMERSLACK, 0, 0, 0, 0, 0])?;
        scheduling.timer_slack_ns = slack;
    }
    guest.leave()?;

    let mut name = task::bytes(pid, &format!("task/{tid}/comm"))?;
    name.pop();
    let image = ThreadImage {
        tid,
        name,
        registers: captured.reissued.to_words().to_vec(),
        waiting_call: captured.now.waiting_call(),
        extended_state,
        signal_mask,
        queued_signals: stored(&queued),
        alternate_stack,
        clear_child_tid: u64::from_ne_bytes(clear_child_tid),
        robust_list: syscalls::robust_list(tid)?,
        rseq: captured.rseq.map(|rseq| Rseq { address: rseq.address, bytes: rseq.bytes, signature: rseq.signature }),
        scheduling,
    };
    Ok((image, captured))
}

fn alternate_stack(guest: &mut Guest<'_>) -> Result<AlternateStack> {
    let bytes: [u8; 24] =
        guest.call_into("sigaltstack", "reading the alternate stack", libc::SYS_sigaltstack, |scratch| {
            [0, scratch, 0, 0, 0, 0]
        })?;
    let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    Ok(AlternateStack { address: word(0), flags: word(8) as u32 as i32 & !SS_ONSTACK, bytes: word(16) })
}
