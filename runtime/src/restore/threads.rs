//! Rebuilds the threads.
//!
//! All threads are made first, each caught before its first instruction, so that nobody runs before everybody is
//! there. Then each makes, by remote calls, what only it can do for itself; its scheduling is set from outside.
//! Registers, extended state and signal mask come when the last remote call has been made ([`load`]).

use super::clone_call::{CloneArguments, clone_refused};
use super::process::{Call, HalfBuilt};
use super::{posix_timers, scheduling, signals, tiles, xstate};
use crate::error::{Error, Result};
use crate::image::{PosixTimer, ProcessImage, ThreadImage};
use crate::ptrace::{Registers, abort_handler};

const PERSONALITY: Call = Call("personality", libc::SYS_personality);
const PRCTL: Call = Call("prctl", libc::SYS_prctl);
const RSEQ: Call = Call("rseq", libc::SYS_rseq);
const SET_ROBUST_LIST: Call = Call("set_robust_list", libc::SYS_set_robust_list);
const SET_TID_ADDRESS: Call = Call("set_tid_address", libc::SYS_set_tid_address);
const SIGALTSTACK: Call = Call("sigaltstack", libc::SYS_sigaltstack);

/// Bytes of a thread's name with its zero.
const NAME_BYTES: usize = 16;

/// Makes all threads but the first, or takes those that were made with the process.
pub fn create(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    if process.threads() > 1 {
        return (1..image.threads.len()).try_for_each(|index| take_on(process, index, image));
    }
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    for thread in image.threads.iter().skip(1) {
        let start = process.scratch()?.start;
        let arguments = CloneArguments {
            flags: flags as u64,
            set_tid: start + size_of::<CloneArguments>() as u64,
            set_tid_size: 1,
            ..CloneArguments::default()
        };
        let mut bytes = arguments.to_bytes();
        bytes.extend(thread.tid.to_ne_bytes());
        let address = process.put(&bytes)?;
        let cloned = process.try_clone(&[address, size_of::<CloneArguments>() as u64])?;
        let child = cloned.map_err(|errno| clone_refused(thread.tid, errno))?;
        let made = child.tid();
        process.add_thread(child);
        if made != thread.tid {
            let what = format!("give the rebuilt program its id {}", thread.tid);
            return Err(Error::environment(what, format!("the kernel gave {made}"), "restart outside a container"));
        }
    }
    Ok(())
}

/// What a thread would have from the main one, if that had made it now.
fn take_on(process: &mut HalfBuilt, index: usize, image: &ProcessImage) -> Result<()> {
    let purpose = format_args!("{:#x} of thread {index}", image.personality);
    process.call(index, PERSONALITY, &[u64::from(image.personality)], purpose)?;
    if image.no_new_privs {
        let arguments = [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0];
        process.call(index, PRCTL, &arguments, format_args!("no_new_privs of thread {index}"))?;
    }
    Ok(())
}

/// Has thread `index` make its own settings. Signals of `timers` are left to them.
pub fn settle(process: &mut HalfBuilt, index: usize, thread: &ThreadImage, timers: &[PosixTimer]) -> Result<()> {
    let tid = thread.tid;
    let purpose = format_args!("thread {tid}");
    process.call(index, SET_TID_ADDRESS, &[thread.clear_child_tid], purpose)?;
    if thread.robust_list.head != 0 {
        let arguments = [thread.robust_list.head, thread.robust_list.bytes];
        process.call(index, SET_ROBUST_LIST, &arguments, purpose)?;
    }
    set_alternate_stack(process, index, thread)?;
    set_name(process, index, thread)?;
    if thread.scheduling.timer_slack_ns != 0 {
        // 0 means "the default" here; only real-time threads have it, and get it with their policy.
        let arguments = [libc::PR_SET_TIMERSLACK as u64, thread.scheduling.timer_slack_ns];
        process.call(index, PRCTL, &arguments, format_args!("timer slack of thread {tid}"))?;
    }
    if tiles::are_used_by(thread) {
        tiles::touch(process, index)?;
    }
    let queued = posix_timers::without_their_signals(timers, &thread.queued_signals);
    signals::queue(process, index, queued, signals::For::Thread(tid))?;
    if let Some(rseq) = &thread.rseq {
        let arguments = [rseq.address, u64::from(rseq.bytes), 0, u64::from(rseq.signature)];
        process.call(index, RSEQ, &arguments, format_args!("restartable sequences of thread {tid}"))?;
    }
    scheduling::set(tid, &thread.scheduling)
}

fn set_alternate_stack(process: &mut HalfBuilt, index: usize, thread: &ThreadImage) -> Result<()> {
    let stack = &thread.alternate_stack;
    let disabled = stack.address == 0 && stack.bytes == 0;
    let flags = if disabled { libc::SS_DISABLE } else { stack.flags };
    // stack_t: sp, flags and padding, size.
    let words = [stack.address, u64::from(flags as u32), stack.bytes];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let address = process.put(&bytes)?;
    let purpose = format_args!("signal stack of thread {}", thread.tid);
    process.call(index, SIGALTSTACK, &[address, 0], purpose).map(drop)
}

fn set_name(process: &mut HalfBuilt, index: usize, thread: &ThreadImage) -> Result<()> {
    let mut name = [0; NAME_BYTES];
    let bytes = thread.name.len().min(NAME_BYTES - 1);
    name[..bytes].copy_from_slice(&thread.name[..bytes]);
    let address = process.put(&name)?;
    let purpose = format_args!("name of thread {}", thread.tid);
    process.call(index, PRCTL, &[libc::PR_SET_NAME as u64, address], purpose).map(drop)
}

/// The registers each thread begins with. To be asked before the registration of restartable sequences, which clears
/// the pointer to the active one.
pub fn first_registers(process: &HalfBuilt, id: u64, thread: &ThreadImage) -> Result<Registers> {
    let words: [u64; Registers::WORDS] = thread.registers.as_slice().try_into().map_err(|_| Error::BadImage {
        id,
        why: format!("thread {} has {} registers", thread.tid, thread.registers.len()),
    })?;
    let mut registers = Registers::from_words(words);
    if let Some(rseq) = &thread.rseq
        && let Some(abort) =
            abort_handler(rseq.address, registers.0.rip, |address, into| process.memory().read(address, into))?
    {
        registers.0.rip = abort;
    }
    Ok(registers)
}

/// Loads what a thread begins with. No remote call may follow: this is the program's state.
pub fn load(process: &HalfBuilt, index: usize, thread: &ThreadImage, registers: &Registers) -> Result<()> {
    let stopped = process.thread(index)?;
    let host_bytes = stopped.extended_state()?.len();
    stopped.set_extended_state(&xstate::fitted(&thread.extended_state, host_bytes))?;
    stopped.set_registers(registers)?;
    stopped.set_signal_mask(thread.signal_mask)
}
