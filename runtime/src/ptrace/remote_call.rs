//! System calls made by a stopped thread on our behalf.
//!
//! The thread is pointed at a `syscall` instruction and caught again at the exit of the call. The caller decides
//! where that instruction is: in libckpt.so's stub for a live program (which survives our death there), in the
//! vdso for a process that is being rebuilt. The registers are left as the call left them; putting the original
//! ones back is the caller's, because only the caller knows whether more calls follow.

use super::registers::Registers;
use super::thread::{StopCause, Stopped};
use crate::error::{Error, Result};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// How long the one instruction may take that is the call; its page may have to be read first.
const ENTRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Where and from which registers a remote call is made.
#[derive(Clone, Copy, Debug)]
pub struct CallSite {
    /// Address of a `syscall` instruction.
    pub syscall: u64,
    /// The other registers during the call (rsp must be usable if signals are not blocked).
    pub registers: Registers,
}

/// What a remote call gave.
#[derive(Debug)]
pub struct CallOutcome {
    /// The value of rax, or the errno.
    pub result: Result<u64, Errno>,
    /// The child, stopped before its first instruction, if the call cloned under `Options::CLONING`.
    pub child: Option<Stopped>,
}

/// Makes `thread` execute system call `number` with `arguments`; signals must be blocked in it.
pub fn remote_call(thread: &mut Stopped, site: &CallSite, number: i64, arguments: [u64; 6]) -> Result<CallOutcome> {
    call(thread, site, number, arguments)
}

/// Like [`remote_call`] for a clone, with its child required.
pub fn remote_clone(
    thread: &mut Stopped,
    site: &CallSite,
    number: i64,
    arguments: [u64; 6],
) -> Result<Result<Stopped, Errno>> {
    let outcome = call(thread, site, number, arguments)?;
    Ok(match (outcome.result, outcome.child) {
        (Ok(_), Some(child)) => Ok(child),
        (Ok(_), None) => Err(Errno::ECHILD),
        (Err(errno), _) => Err(errno),
    })
}

/// One of several calls that are made at the same time, each in a thread of its own.
#[derive(Debug)]
pub struct CallOf<'a> {
    /// The thread, in which signals must be blocked.
    pub thread: &'a mut Stopped,
    /// Where it makes the call.
    pub site: CallSite,
    /// What it passes.
    pub arguments: [u64; 6],
}

/// Like [`remote_call`] in several threads at once: what each call gave, in their order. All have stopped again, also if one failed.
pub fn remote_calls(number: i64, mut calls: Vec<CallOf<'_>>) -> Result<Vec<Result<u64, Errno>>> {
    let begun = |of: &mut CallOf<'_>| begin(of.thread, &of.site, number, of.arguments);
    let states: Vec<Result<()>> = calls.iter_mut().map(begun).collect();
    let reached = |(of, state): (&mut CallOf<'_>, Result<()>)| {
        state.and_then(|()| reach_entry(of.thread, number)).and_then(|()| of.thread.resume_to_syscall_stop())
    };
    let states: Vec<Result<()>> = calls.iter_mut().zip(states).map(reached).collect();
    let ended = |(of, state): (&mut CallOf<'_>, Result<()>)| state.and_then(|()| reach_exit(of.thread));
    let outcomes: Vec<Result<CallOutcome>> = calls.iter_mut().zip(states).map(ended).collect();
    outcomes.into_iter().map(|outcome| outcome.map(|outcome| outcome.result)).collect()
}

/// Lets `thread` run code that makes calls, from `registers` on, until it stops itself by a SIGSTOP at `end`; gives the registers there.
/// Signals must be blocked in it.
pub fn run_code(thread: &mut Stopped, registers: &Registers, end: u64) -> Result<Registers> {
    thread.set_registers(registers)?;
    loop {
        let signal = thread.continue_to_signal()?;
        let registers = thread.registers()?;
        match Signal::try_from(signal) {
            Ok(Signal::SIGSTOP) if registers.0.rip == end => return Ok(registers),
            _ => thread.hold(signal)?,
        }
    }
}

fn call(thread: &mut Stopped, site: &CallSite, number: i64, arguments: [u64; 6]) -> Result<CallOutcome> {
    begin(thread, site, number, arguments)?;
    reach_entry(thread, number)?;
    thread.resume_to_syscall_stop()?;
    reach_exit(thread)
}

/// Sends the thread to its call.
fn begin(thread: &Stopped, site: &CallSite, number: i64, arguments: [u64; 6]) -> Result<()> {
    let mut registers = site.registers;
    registers.0.rip = site.syscall;
    registers.0.rax = number as u64;
    registers.0.orig_rax = u64::MAX; // no pending restart: the kernel must not touch rax and rip
    [registers.0.rdi, registers.0.rsi, registers.0.rdx, registers.0.r10, registers.0.r8, registers.0.r9] = arguments;
    thread.set_registers(&registers)?;
    thread.resume_to_syscall_stop()
}

/// Waits until the call that the thread is in has returned.
fn reach_exit(thread: &mut Stopped) -> Result<CallOutcome> {
    let mut child = None;
    loop {
        match thread.wait_for_syscall_stop(None)? {
            StopCause::Syscall => break,
            StopCause::Clone => {
                child = Some(thread.cloned_child(Instant::now() + Duration::from_secs(10))?);
                thread.resume_to_syscall_stop()?;
            }
            StopCause::Trap(_) | StopCause::Signal(_) | StopCause::Event(_) => {
                return Err(Error::Ptrace { request: "remote call", tid: thread.tid(), source: Errno::EPROTO });
            }
        }
    }
    let rax = thread.registers()?.0.rax as i64;
    let result = if (-4095..0).contains(&rax) { Err(Errno::from_raw(-rax as i32)) } else { Ok(rax as u64) };
    Ok(CallOutcome { result, child })
}

/// Waits for the thread at its call, which is its next instruction, unless its program has written over it.
fn reach_entry(thread: &mut Stopped, number: i64) -> Result<()> {
    let tid = thread.tid();
    let instead = match thread.wait_for_syscall_stop(Some(Instant::now() + ENTRY_TIMEOUT))? {
        StopCause::Syscall => {
            let mut registers = thread.registers()?;
            if registers.0.orig_rax == number as u64 {
                return Ok(());
            }
            let other = registers.0.orig_rax;
            // It is not made: the thread goes on to its exit with this number, which is that of no call.
            registers.0.orig_rax = u64::MAX;
            thread.set_registers(&registers)?;
            thread.continue_to_syscall_stop(Some(Instant::now() + ENTRY_TIMEOUT))?;
            format!("it made call {other}")
        }
        StopCause::Signal(signal) => {
            let name = Signal::try_from(signal).map_or("an unknown signal", Signal::as_str);
            format!("it got {name}")
        }
        StopCause::Trap(_) => format!("it made none for {} s", ENTRY_TIMEOUT.as_secs()),
        StopCause::Clone | StopCause::Event(_) => "it reported an event".to_owned(),
    };
    Err(Error::Overwritten { tid, number, instead })
}
