//! The agent dies while a thread of the program executes a call for it in the stub.
//!
//! The agent here is a thread that traces the victim and simply ends, whereupon the kernel lets go of the victim
//! exactly as it does when a process dies. It does so at every point of an injected call, many times over, and the
//! victim must come out as if nothing had been.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::ffi::c_void;
use std::io::Error;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use ckpt_wire::{CONTROL_MAGIC, Control, STATE_READY, StubFrame};
use support::{Victim, until};

/// Where the agent dies.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// The registers are set, the thread has not moved.
    BeforeTheCall,
    /// At the entry of the call.
    AtEntry,
    /// At the exit of the call.
    AtExit,
    /// At the event of a clone, whose child is traced too by now.
    AtCloneEvent,
}

/// What is injected.
#[derive(Clone, Copy, Debug)]
enum Call {
    GetPid,
    /// Fails with EBADF.
    CloseNothing,
    /// A copy of the program.
    Clone,
    /// Fails with EINVAL.
    CloneBadly,
}

/// What became of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Abandoned,
    /// The thread is still on its way out of the stub, from the attempt before.
    InStub,
    /// The thread has ended.
    Gone,
}

const DEATHS: [Death; 4] = [Death::BeforeTheCall, Death::AtEntry, Death::AtExit, Death::AtCloneEvent];
const CALLS: [Call; 4] = [Call::GetPid, Call::Clone, Call::CloseNothing, Call::CloneBadly];

/// A victim whose stub is known.
struct Target {
    victim: Victim,
    threads: Vec<i32>,
    stub: std::ops::Range<u64>,
    frame: u64,
}

impl Target {
    fn start(name: &str, argument: &str, threads: usize, directory: &std::path::Path) -> Self {
        let mut command = support::preloaded(&support::compile(directory, name));
        command.arg(argument).current_dir(directory);
        let victim = Victim::start(command);
        let line = victim.line();
        let address = u64::from_str_radix(line.strip_prefix("control 0x").expect(&line), 16).unwrap();
        let thread = |_| victim.line().strip_prefix("thread ").unwrap().parse().unwrap();
        let threads = (0..threads).map(thread).collect();
        // SAFETY: a control block is plain numbers.
        let control: Control = unsafe { read_memory(victim.pid(), address) };
        assert_eq!((control.magic, control.state), (CONTROL_MAGIC, STATE_READY));
        Self { threads, stub: control.stub_start..control.stub_end, frame: control.frame, victim }
    }

    /// An agent that stops `thread`, injects `call` and dies. Its own thread ends with it.
    fn abandon(&self, thread: i32, call: Call, death: Death) -> Attempt {
        let (pid, stub, frame) = (self.victim.pid(), self.stub.clone(), self.frame);
        let agent = std::thread::spawn(move || attempt(pid, thread, &stub, frame, call, death));
        agent.join().unwrap()
    }

    /// Goes through all calls and deaths in all threads until every thread has ended.
    fn abandon_until_it_ends(&self, rounds_min: usize) {
        let mut abandoned = 0;
        for round in 0.. {
            let thread = self.threads[round % self.threads.len()];
            let (call, death) = (CALLS[round / 3 % 4], DEATHS[round / 12 % 4]);
            let attempt = until("the thread to leave the stub", || {
                Some(self.abandon(thread, call, death)).filter(|attempt| *attempt != Attempt::InStub)
            });
            if attempt == Attempt::Gone && self.threads.iter().all(|&thread| gone(self.victim.pid(), thread)) {
                break;
            }
            if attempt == Attempt::Abandoned {
                abandoned += 1;
                // The frame is one for the whole program: the next agent waits until this thread is through.
                until("the thread to leave the stub", || self.left_stub(thread).then_some(()));
            }
        }
        eprintln!("{abandoned} abandoned calls");
        assert!(abandoned >= rounds_min, "only {abandoned} calls were abandoned: the victim ended too early");
    }

    /// Whether the thread is out of the stub, and no child is left of what it did there.
    fn left_stub(&self, thread: i32) -> bool {
        let (pid, stub) = (self.victim.pid(), self.stub.clone());
        let agent = std::thread::spawn(move || {
            let Some(registers) = stop(thread) else { return true };
            let left = !stub.contains(&registers.rip);
            if left {
                let own = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
                for child in own.split_whitespace() {
                    // The victim's own children have an exit signal, and a name of the victim's choice; a copy that
                    // the stub left behind would be a zombie whose end nobody waits for.
                    let state = support::status_field(child.parse().unwrap(), "State").unwrap_or_default();
                    assert!(!state.starts_with('Z') || own.split_whitespace().count() == 1, "zombies: {own}");
                }
                assert!(own.split_whitespace().count() <= 1, "copies of the program: {own}");
            }
            left
        });
        agent.join().unwrap()
    }
}

fn gone(pid: i32, thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

fn attempt(pid: i32, thread: i32, stub: &std::ops::Range<u64>, frame: u64, call: Call, death: Death) -> Attempt {
    let Some(registers) = stop(thread) else { return Attempt::Gone };
    if stub.contains(&registers.rip) {
        return Attempt::InStub;
    }
    let mut mask = 0_u64;
    // SAFETY: the thread is stopped; the kernel writes 8 bytes.
    unsafe { ptrace(libc::PTRACE_GETSIGMASK, thread, 8, (&raw mut mask).cast()) }.unwrap();
    write_memory(pid, frame, &frame_of(&restartable(registers), mask));
    let mut all = u64::MAX;
    // SAFETY: the thread is stopped; the kernel reads 8 bytes.
    unsafe { ptrace(libc::PTRACE_SETSIGMASK, thread, 8, (&raw mut all).cast()) }.unwrap();
    let mut injected = injection(registers, stub.start, frame, call);
    // SAFETY: the thread is stopped; the kernel reads one set of registers.
    unsafe { ptrace(libc::PTRACE_SETREGS, thread, 0, (&raw mut injected).cast()) }.unwrap();
    let step = |request| {
        // SAFETY: the thread is stopped; no pointers.
        unsafe { ptrace(request, thread, 0, null_mut()) }.unwrap();
        wait_stop(thread);
    };
    match death {
        Death::BeforeTheCall => {}
        Death::AtEntry => step(libc::PTRACE_SYSCALL),
        Death::AtExit => {
            step(libc::PTRACE_SYSCALL);
            step(libc::PTRACE_SYSCALL);
        }
        Death::AtCloneEvent => {
            let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK;
            // SAFETY: the thread is stopped; options are a number.
            unsafe { ptrace(libc::PTRACE_SETOPTIONS, thread, 0, options as usize as *mut c_void) }.unwrap();
            step(libc::PTRACE_SYSCALL);
            step(libc::PTRACE_SYSCALL);
        }
    }
    // The agent dies: its thread ends here, and with it the tracing.
    Attempt::Abandoned
}

/// Seizes and stops a thread; `None` when it has ended.
fn stop(thread: i32) -> Option<libc::user_regs_struct> {
    // The agent before may not be quite dead yet.
    let seized = until("a thread that can be traced", || {
        // SAFETY: no pointers.
        match unsafe { ptrace(libc::PTRACE_SEIZE, thread, 0, null_mut()) } {
            Ok(()) => Some(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Some(false),
            Err(_) if support::status_field(thread, "State").is_none_or(|state| state.starts_with(['Z', 'X'])) => {
                Some(false)
            }
            Err(_) => None,
        }
    });
    if !seized {
        return None;
    }
    // SAFETY: no pointers.
    unsafe { ptrace(libc::PTRACE_INTERRUPT, thread, 0, null_mut()) }.ok()?;
    loop {
        let status = wait_stop(thread)?;
        if status >> 16 == libc::PTRACE_EVENT_STOP {
            break;
        }
        // A signal on its way: let it through, and come to our own stop afterwards.
        let signal = libc::WSTOPSIG(status);
        // SAFETY: the thread is stopped; the signal is a number.
        unsafe { ptrace(libc::PTRACE_CONT, thread, 0, signal as usize as *mut c_void) }.ok()?;
    }
    let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: the thread is stopped; the kernel writes one set of registers.
    unsafe { ptrace(libc::PTRACE_GETREGS, thread, 0, registers.as_mut_ptr().cast()) }.ok()?;
    // SAFETY: the call above succeeded.
    Some(unsafe { registers.assume_init() })
}

/// Waits for the next stop of a thread; `None` when it ends instead, which is left for its parent to reap: this
/// process is that, too.
fn wait_stop(thread: i32) -> Option<i32> {
    let mut details = MaybeUninit::<libc::siginfo_t>::zeroed();
    let events = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the kernel writes one siginfo, for which zero is a value before.
    let details = unsafe {
        libc::waitid(libc::P_PID, thread as u32, details.as_mut_ptr(), events);
        details.assume_init()
    };
    if !matches!(details.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED) {
        return None;
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    let result = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WUNTRACED) };
    (result == thread && libc::WIFSTOPPED(status)).then_some(status)
}

/// Registers with which an interrupted system call goes on, as the kernel would set them.
fn restartable(mut registers: libc::user_regs_struct) -> libc::user_regs_struct {
    const RESTART_BLOCK: i64 = -516;
    if registers.orig_rax as i64 >= 0 {
        match registers.rax as i64 {
            -514..=-512 => {
                registers.rax = registers.orig_rax;
                registers.rip -= 2;
            }
            RESTART_BLOCK => {
                registers.rax = libc::SYS_restart_syscall as u64;
                registers.rip -= 2;
            }
            _ => {}
        }
    }
    registers
}

fn injection(mut registers: libc::user_regs_struct, stub_start: u64, frame: u64, call: Call) -> libc::user_regs_struct {
    let (number, first, is_clone) = match call {
        Call::GetPid => (libc::SYS_getpid, 0, 0),
        Call::CloseNothing => (libc::SYS_close, -1, 0),
        Call::Clone => (libc::SYS_clone, 0, 1),
        Call::CloneBadly => (libc::SYS_clone, i64::from(libc::CLONE_THREAD), 1),
    };
    registers.rip = stub_start;
    registers.rsp = (registers.rsp - 128) & !15;
    registers.rax = number as u64;
    registers.orig_rax = u64::MAX;
    registers.r12 = is_clone;
    registers.r14 = frame;
    registers.rdi = first as u64;
    (registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9) = (0, 0, 0, 0, 0);
    registers
}

fn frame_of(registers: &libc::user_regs_struct, sigmask: u64) -> StubFrame {
    StubFrame {
        r15: registers.r15,
        r14: registers.r14,
        r13: registers.r13,
        r12: registers.r12,
        rbp: registers.rbp,
        rbx: registers.rbx,
        r11: registers.r11,
        r10: registers.r10,
        r9: registers.r9,
        r8: registers.r8,
        rax: registers.rax,
        rcx: registers.rcx,
        rdx: registers.rdx,
        rsi: registers.rsi,
        rdi: registers.rdi,
        rip: registers.rip,
        rflags: registers.eflags,
        rsp: registers.rsp,
        sigmask,
    }
}

/// # Safety
/// As ptrace(2) says for `request`.
unsafe fn ptrace(request: libc::c_uint, thread: i32, address: usize, data: *mut c_void) -> Result<(), Error> {
    // SAFETY: the caller's word.
    match unsafe { libc::ptrace(request, thread, address, data) } {
        -1 => Err(Error::last_os_error()),
        _ => Ok(()),
    }
}

/// # Safety
/// Every bit pattern must be a value of `T`.
unsafe fn read_memory<T>(pid: i32, address: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    let local = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: size_of::<T>() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: size_of::<T>() };
    // SAFETY: the kernel writes the length given into `value`.
    let bytes = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    assert_eq!(bytes, size_of::<T>() as isize, "{}", Error::last_os_error());
    // SAFETY: completely written, and the caller's word on the bit pattern.
    unsafe { value.assume_init() }
}

fn write_memory(pid: i32, address: u64, frame: &StubFrame) {
    let local = libc::iovec { iov_base: std::ptr::from_ref(frame).cast_mut().cast(), iov_len: size_of::<StubFrame>() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: size_of::<StubFrame>() };
    // SAFETY: the kernel reads the length given from `frame`.
    let bytes = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    assert_eq!(bytes, size_of::<StubFrame>() as isize, "{}", Error::last_os_error());
}

fn lines(victim: &Victim, count: usize) -> Vec<String> {
    (0..count).map(|_| victim.line()).collect()
}

#[test]
fn a_computation_in_registers_survives_hundreds_of_dying_agents() {
    const ROUNDS: &str = "200000000";
    let directory = tempfile::tempdir().unwrap();
    let plain = support::output(support::plain(&support::compile(directory.path(), "registers")).arg(ROUNDS));
    let expected: Vec<&str> = plain.lines().filter(|line| line.starts_with("sum ")).collect();
    let mut target = Target::start("registers", ROUNDS, 3, directory.path());
    target.abandon_until_it_ends(100);
    assert_eq!(lines(&target.victim, expected.len()), expected);
    assert!(target.victim.wait().success());
}

#[test]
fn system_calls_that_wait_go_on_behind_dying_agents() {
    let directory = tempfile::tempdir().unwrap();
    let mut target = Target::start("blocked", "", 1, directory.path());
    target.abandon_until_it_ends(50);
    let expected = [
        "nanosleep 0 - in time",
        "poll 0 - in time",
        "select 0 - in time",
        "futex -1 Connection timed out in time",
        "read 1 - in time",
        "waitpid 7 - in time",
        "waitpid -1 No child processes in time",
    ];
    assert_eq!(lines(&target.victim, expected.len()), expected);
    assert!(target.victim.wait().success());
}
