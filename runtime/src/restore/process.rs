//! The half-built process: its stopped threads and the remote calls they make.
//!
//! While it exists it is expendable: dropping it kills and reaps the process, and the kernel does the same when the
//! restarter dies (`PTRACE_O_EXITKILL`). Only [`HalfBuilt::release_all`] makes a program of it.
//!
//! Remote calls are made at a `syscall` instruction of the process's own vdso, the one piece of code that is there
//! before, during and after the exchange of the address space. Arguments in memory lie in a scratch area at an
//! address that neither the old nor the new address space uses.

use std::ffi::c_long;
use std::fmt::Arguments;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ranges::Span;
use crate::descriptor::{can_fetch, pidfd_getfd, pidfd_open};
use crate::error::{Error, Result};
use crate::filtered;
use crate::proc::task::{self, FIRST_PROCESS};
use crate::ptrace::{
    CallSite, Options, ProcessMemory, Stopped, remote_call, remote_clone, wait_until_gone, write_memory,
};

/// Bytes of the scratch area: the largest argument is the list of 65,536 supplementary groups.
pub const SCRATCH_BYTES: u64 = 512 * 1024;

/// Longest time until a process has stopped that was stopped before.
const STOPPING_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an id that a clone is to have may seem to be in use, and the time between two tries.
const CLONE_TIMEOUT: Duration = Duration::from_secs(1);
const CLONE_PAUSE: Duration = Duration::from_millis(1);

/// A system call by name and number.
#[derive(Clone, Copy, Debug)]
pub struct Call(pub &'static str, pub c_long);

/// A process that is being rebuilt.
#[derive(Debug)]
pub struct HalfBuilt {
    pid: i32,
    /// Its threads in the order of the image; empty before the first stop.
    threads: Vec<Stopped>,
    /// Its memory, whatever the protection.
    memory: ProcessMemory,
    site: Option<CallSite>,
    scratch: Option<u64>,
    released: bool,
}

impl HalfBuilt {
    /// Takes over the seized child `pid`; on failure the child is still the caller's.
    pub fn new(pid: i32) -> Result<HalfBuilt> {
        let memory = ProcessMemory::open(pid)?;
        Ok(HalfBuilt { pid, threads: Vec::new(), memory, site: None, scratch: None, released: false })
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Adds the main thread, stopped, which makes its calls at `syscall`.
    pub fn stopped_at(&mut self, main: Stopped, syscall: u64) -> Result<()> {
        let registers = main.registers();
        self.threads.push(main);
        self.site = Some(CallSite { syscall, registers: registers? });
        Ok(())
    }

    /// Adds a further thread.
    pub fn add_thread(&mut self, thread: Stopped) {
        self.threads.push(thread);
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Thread `index` in the order of the image.
    pub fn thread(&self, index: usize) -> Result<&Stopped> {
        self.threads.get(index).ok_or(Error::ProgramGone { pid: self.pid })
    }

    /// The same, to change how it is controlled.
    pub fn thread_mut(&mut self, index: usize) -> Result<&mut Stopped> {
        self.threads.get_mut(index).ok_or(Error::ProgramGone { pid: self.pid })
    }

    /// Its main thread, which makes the calls that are made for all.
    pub fn main_thread(&mut self) -> Result<&mut Stopped> {
        self.threads.first_mut().ok_or(Error::ProgramGone { pid: self.pid })
    }

    /// Its memory, whatever the protection.
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// Moves the place where calls are made, after the vdso has moved.
    pub fn move_site(&mut self, syscall: u64) {
        if let Some(site) = &mut self.site {
            site.syscall = syscall;
        }
    }

    /// The place where calls are made.
    pub fn site(&self) -> Result<CallSite> {
        self.site.ok_or(Error::ProgramGone { pid: self.pid })
    }

    /// Makes thread `thread` execute a system call.
    pub fn call(&mut self, thread: usize, call: Call, arguments: &[u64], purpose: Arguments) -> Result<u64> {
        self.try_call(thread, call, arguments)?.map_err(|source| self.refused(call, purpose, source))
    }

    /// Like [`HalfBuilt::call`], with the kernel's refusal left to the caller.
    pub fn try_call(&mut self, thread: usize, call: Call, arguments: &[u64]) -> Result<Result<u64, Errno>> {
        let site = self.site()?;
        self.try_call_at(thread, &site, call, arguments)
    }

    /// Like [`HalfBuilt::try_call`], at another place.
    pub fn try_call_at(
        &mut self,
        thread: usize,
        site: &CallSite,
        call: Call,
        arguments: &[u64],
    ) -> Result<Result<u64, Errno>> {
        let stopped = self.threads.get_mut(thread).ok_or(Error::ProgramGone { pid: self.pid })?;
        Ok(remote_call(stopped, site, call.1, padded(arguments))?.result)
    }

    /// Makes the main thread clone by `clone3`; the child is stopped before its first instruction.
    ///
    /// Since Linux 6.15 the id of a thread that has ended is given back a moment after its process can be waited for: a program that
    /// was killed just now may have its ids for a little longer than anybody can see, and on a busy machine that is more than
    /// a moment.
    pub fn try_clone(&mut self, arguments: &[u64; 2]) -> Result<Result<Stopped, Errno>> {
        let site = self.site()?;
        let deadline = Instant::now() + CLONE_TIMEOUT;
        loop {
            match remote_clone(self.main_thread()?, &site, libc::SYS_clone3, padded(arguments))? {
                Err(Errno::EEXIST) if Instant::now() < deadline => thread::sleep(CLONE_PAUSE),
                outcome => return Ok(outcome),
            }
        }
    }

    /// The error for a refused call.
    pub fn refused(&self, call: Call, purpose: Arguments, source: Errno) -> Error {
        Error::RemoteCall { pid: self.pid, call: call.0, purpose: purpose.to_string(), source }
    }

    /// A userfaultfd of its memory, which it does not hold itself.
    ///
    /// # Errors
    /// When the process is gone. That it cannot be had is given as a value: the process is as before.
    pub fn make_userfaultfd(&mut self, flags: u64) -> Result<Result<OwnedFd>> {
        const USERFAULTFD: Call = Call("userfaultfd", libc::SYS_userfaultfd);
        const CLOSE: Call = Call("close", libc::SYS_close);
        let unable = |errno| Ok(Err(Error::io("make", "a userfaultfd", errno)));
        // The process is under the filters that we are under.
        if filtered::is_deadly(USERFAULTFD.1, flags) {
            return unable(Errno::EPERM);
        }
        if let Err(errno) = can_fetch() {
            return unable(errno);
        }
        let number = match self.try_call(0, USERFAULTFD, &[flags])? {
            Ok(number) => number,
            Err(errno) => return unable(errno),
        };
        let fetched = pidfd_open(self.pid).and_then(|pidfd| pidfd_getfd(pidfd.as_fd(), number as i32));
        self.call(0, CLOSE, &[number], format_args!("our userfaultfd"))?;
        Ok(fetched)
    }

    /// Maps the scratch area at `address`.
    pub fn map_scratch(&mut self, address: u64) -> Result<()> {
        const MMAP: Call = Call("mmap", libc::SYS_mmap);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let arguments = [address, SCRATCH_BYTES, protection as u64, flags as u64, u64::MAX, 0];
        self.call(0, MMAP, &arguments, format_args!("scratch area"))?;
        self.scratch = Some(address);
        Ok(())
    }

    /// Removes the scratch area: the last remote call of all.
    pub fn unmap_scratch(&mut self) -> Result<()> {
        const MUNMAP: Call = Call("munmap", libc::SYS_munmap);
        match self.scratch.take() {
            Some(address) => self.call(0, MUNMAP, &[address, SCRATCH_BYTES], format_args!("scratch area")).map(drop),
            None => Ok(()),
        }
    }

    /// The scratch area.
    pub fn scratch(&self) -> Result<Span> {
        let start = self.scratch.ok_or(Error::ProgramGone { pid: self.pid })?;
        Ok(Span::of(start, SCRATCH_BYTES))
    }

    /// Puts `bytes` into the scratch area and returns their address. The next `put` overwrites them.
    pub fn put(&self, bytes: &[u8]) -> Result<u64> {
        let scratch = self.scratch()?;
        if bytes.len() as u64 > SCRATCH_BYTES {
            let why = format!("an argument has {} bytes, there is room for {SCRATCH_BYTES}", bytes.len());
            return Err(Error::unsupported("rebuilding the process", why, "please report this"));
        }
        if !bytes.is_empty() {
            write_memory(self.pid, scratch.start, bytes)?;
        }
        Ok(scratch.start)
    }

    /// Makes programs of them: from here on they survive the restarter, and all their threads run. Those that `stops` has a signal for are
    /// stopped by it before any other runs, which may ask at once what they do.
    pub fn release_all(mut all: Vec<HalfBuilt>, stops: &dyn Fn(i32) -> Option<Signal>) -> Result<()> {
        for thread in all.iter().flat_map(|process| &process.threads) {
            thread.set_options(Options::PROGRAM)?;
        }
        all.iter_mut().for_each(|process| process.released = true);
        let (stopped, running): (Vec<_>, Vec<_>) = all.into_iter().partition(|process| stops(process.pid).is_some());
        let pids: Vec<i32> = stopped.iter().map(HalfBuilt::pid).collect();
        for &pid in &pids {
            let signal = stops(pid).unwrap_or(Signal::SIGSTOP);
            kill(Pid::from_raw(pid), signal).map_err(|source| Error::io("stop", format!("process {pid}"), source))?;
        }
        HalfBuilt::let_run(stopped)?;
        pids.into_iter().for_each(wait_until_stopped);
        HalfBuilt::let_run(running)
    }

    fn let_run(all: Vec<HalfBuilt>) -> Result<()> {
        for mut process in all {
            // The main thread last. A program may end as soon as one thread of it runs; its end is reported when we have waited
            // for all others that we still traced.
            for (index, thread) in std::mem::take(&mut process.threads).into_iter().enumerate().rev() {
                let tid = thread.tid();
                if !thread.detach_if_alive()? && index > 0 {
                    reap(tid);
                }
            }
        }
        Ok(())
    }
}

impl Drop for HalfBuilt {
    fn drop(&mut self) {
        // The first process of our pid namespace is ended by the kernel when we end, and by nothing before.
        if self.released || self.pid == FIRST_PROCESS {
            return;
        }
        let _guard = Expendable(self.pid);
        kill_only(self.pid);
        // A leader is gone only after all the others have been reaped.
        for thread in std::mem::take(&mut self.threads).into_iter().skip(1) {
            let tid = thread.tid();
            drop(thread);
            reap(tid);
        }
    }
}

/// A child that is killed and reaped when this is dropped.
pub struct Expendable(pub i32);

impl Drop for Expendable {
    fn drop(&mut self) {
        kill_only(self.0);
        reap(self.0);
    }
}

fn kill_only(pid: i32) {
    if let Err(error) = kill(Pid::from_raw(pid), Signal::SIGKILL) {
        log::debug!("ending the half-built process {pid}: {error}");
    }
}

fn reap(tid: i32) {
    if let Err(error) = wait_until_gone(tid) {
        log::warn!("waiting for the end of the half-built process {tid}: {error}");
    }
}

/// Waits for the stop of a process that a signal has been sent to. One that has been killed meanwhile does not stop.
fn wait_until_stopped(pid: i32) {
    let deadline = Instant::now() + STOPPING_TIMEOUT;
    while !task::is_job_stopped(pid) && task::lives(pid) {
        if Instant::now() >= deadline {
            return log::warn!("process {pid} does not stop, as it was at the checkpoint");
        }
        thread::sleep(Duration::from_micros(100));
    }
}

fn padded(arguments: &[u64]) -> [u64; 6] {
    let mut six = [0; 6];
    for (slot, &argument) in six.iter_mut().zip(arguments) {
        *slot = argument;
    }
    six
}
