//! System calls executed inside the program, in a way that survives our death at any instruction.
//!
//! A stopped thread is pointed at the stub. Before that, its own registers and signal mask are
//! written into the stub's frame, inside the program. While we live, we catch the thread at the exit of each call and
//! put the registers back by ptrace. If we disappear, the kernel lets the thread run: it falls through the
//! stub, which puts the same registers back from the frame. The order of the requests matters:
//!
//! - enter: frame, then registers (from here the stub brings the thread home), then block all signals
//!   (the stub unblocks them);
//! - leave: the signal mask first, while the stub still holds the thread, then the registers.
//!
//! Why not a signal frame and `rt_sigreturn`: the stub changes neither the extended state nor the alternate
//! stack, so loading nineteen words by plain moves is enough and depends on nothing in the kernel.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Mutex;

use ckpt_wire::{Control, SCRATCH_BYTES, STUB_ANY_CALL, STUB_CLONE, STUB_EXPENDABLE, STUB_FRAMES, StubFrame};
use nix::errno::Errno;
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::filtered;
use crate::ptrace::{
    CallOf, CallSite, Options, RED_ZONE_BYTES, Registers, Stopped, read_memory, remote_call, remote_calls,
    remote_clone, write_memory,
};

const ALL_SIGNALS: u64 = u64::MAX;

/// The frame and the scratch area of one guest.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    frame: u64,
    scratch: u64,
}

impl Seat {
    /// Bytes of scratch of each guest where there are several.
    pub const BYTES: usize = SCRATCH_BYTES / STUB_FRAMES;

    /// That of a guest that is alone, which has the whole scratch area.
    pub fn alone(control: &Control) -> Seat {
        Seat { frame: control.frame, scratch: control.scratch }
    }

    /// Those of guests that are in the program at the same time, where `threads` of them are to come: one where there is no room
    /// for more, or where they are few. On a busy host a thread that is woken alone runs at once, and one of many waits.
    pub fn of(threads: usize, control: &Control) -> Vec<Seat> {
        if control.frames == 0 || threads < STUB_FRAMES {
            return vec![Seat::alone(control)];
        }
        let seat = |number: usize| Seat {
            frame: control.frames + (number * size_of::<StubFrame>()) as u64,
            scratch: control.scratch + (number * Seat::BYTES) as u64,
        };
        (0..STUB_FRAMES).map(seat).collect()
    }
}

/// A thread of the program that is in the stub and makes calls for us. Dropping it brings the thread home.
#[derive(Debug)]
pub struct Guest<'a> {
    pid: i32,
    thread: &'a mut Stopped,
    scratch: u64,
    site: CallSite,
    home: Registers,
    home_mask: u64,
    left: bool,
    /// How many filters the program is under, once it has been asked.
    filters: OnceCell<Option<u32>>,
}

impl<'a> Guest<'a> {
    /// Points `thread` of process `pid` at the stub.
    ///
    /// `home` are the registers to go on with when all is well; `reissued` the ones for a thread whose pending
    /// restart was lost because we died (see [`Registers::reissuing`]).
    pub fn enter(
        pid: i32,
        thread: &'a mut Stopped,
        control: &Control,
        home: Registers,
        reissued: &Registers,
    ) -> Result<Guest<'a>> {
        Guest::enter_at(Seat::alone(control), pid, thread, control, home, reissued)
    }

    /// The same with a frame and a scratch area of which other guests have others.
    pub fn enter_at(
        seat: Seat,
        pid: i32,
        thread: &'a mut Stopped,
        control: &Control,
        home: Registers,
        reissued: &Registers,
    ) -> Result<Guest<'a>> {
        let write = &mut |address, bytes: &[u8]| write_memory(pid, address, bytes);
        Guest::enter_with(seat, pid, thread, control, home, reissued, write)
    }

    /// The same for a frame that the program itself may not write to; `write` writes it.
    pub fn enter_with(
        seat: Seat,
        pid: i32,
        thread: &'a mut Stopped,
        control: &Control,
        home: Registers,
        reissued: &Registers,
        write: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Guest<'a>> {
        let home_mask = thread.signal_mask()?;
        write(seat.frame, reissued.frame(home_mask).as_bytes())?;

        let mut registers = Registers::from_words([0; Registers::WORDS]);
        registers.0.rsp = (home.0.rsp - RED_ZONE_BYTES) & !0xf;
        registers.0.eflags = 0x202; // interrupts enabled, nothing else
        (registers.0.cs, registers.0.ss) = (home.0.cs, home.0.ss);
        (registers.0.ds, registers.0.es) = (home.0.ds, home.0.es);
        (registers.0.fs, registers.0.gs) = (home.0.fs, home.0.gs);
        (registers.0.fs_base, registers.0.gs_base) = (home.0.fs_base, home.0.gs_base);
        registers.0.r12 = STUB_ANY_CALL;
        registers.0.r14 = seat.frame;
        registers.0.rax = libc::SYS_getpid as u64;
        registers.0.orig_rax = u64::MAX;
        registers.0.rip = control.stub_start;
        thread.set_registers(&registers)?;

        let site = CallSite { syscall: control.stub_start, registers };
        let guest =
            Guest { pid, thread, scratch: seat.scratch, site, home, home_mask, left: false, filters: OnceCell::new() };
        guest.thread.set_signal_mask(ALL_SIGNALS)?;
        Ok(guest)
    }

    /// Makes one system call; `name` and `purpose` are for the message if it fails.
    pub fn call(&mut self, name: &'static str, purpose: &str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        self.refuse_deadly(purpose, number, arguments[0])?;
        remote_call(self.thread, &self.site, number, arguments)?.result.map_err(|source| Error::RemoteCall {
            pid: self.pid,
            call: name,
            purpose: purpose.to_owned(),
            source,
        })
    }

    /// Makes one system call whose failure means something to the caller. One that a filter may end the program for fails.
    pub fn try_call(&mut self, number: i64, arguments: [u64; 6]) -> Result<Result<u64, Errno>> {
        if self.must_not_call(number, arguments[0]) {
            return Ok(Err(Errno::EPERM));
        }
        Ok(remote_call(self.thread, &self.site, number, arguments)?.result)
    }

    /// Whether a filter may end the program for a call that is not needed.
    pub fn must_not_call(&self, number: i64, first: u64) -> bool {
        static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
        let deadly = filtered::maybe_deadly_under(|| self.filters(), number, first);
        if let Some(name) = deadly
            && SAID.lock().is_ok_and(|mut said| said.insert(name))
        {
            log::info!("a seccomp filter may end who calls {name}: it is not called in the program");
        }
        deadly.is_some()
    }

    /// Refuses a call that has to be made and would end the program.
    pub fn refuse_deadly(&self, purpose: &str, number: i64, first: u64) -> Result<()> {
        match filtered::deadly_under(|| self.filters(), number, first) {
            None => Ok(()),
            Some(name) => Err(Error::environment(
                format!("{purpose} in process {}", self.pid),
                format!("a seccomp filter ends who calls {name}"),
                filtered::ALLOW,
            )),
        }
    }

    /// How many filters judge its calls, which is asked once. One that is gone is found out by the call itself.
    fn filters(&self) -> Option<u32> {
        if self.thread.is_unfiltered() {
            return Some(0);
        }
        *self.filters.get_or_init(|| filtered::of(self.pid).unwrap_or_default())
    }

    /// Makes one system call that fills `N` bytes at the scratch area, and reads them.
    pub fn call_into<const N: usize>(
        &mut self,
        name: &'static str,
        purpose: &str,
        number: i64,
        arguments: impl FnOnce(u64) -> [u64; 6],
    ) -> Result<[u8; N]> {
        const { assert!(N <= ckpt_wire::SCRATCH_BYTES) };
        self.call(name, purpose, number, arguments(self.scratch))?;
        let mut bytes = [0; N];
        read_memory(self.pid, self.scratch, &mut bytes)?;
        Ok(bytes)
    }

    /// Makes one system call in each of several guests, all at the same time; `name` and `purpose` are for the message if one fails.
    pub fn call_in_all(
        guests: &mut [Guest<'a>],
        name: &'static str,
        purpose: &str,
        number: i64,
        arguments: impl Fn(u64) -> [u64; 6],
    ) -> Result<Vec<u64>> {
        let Some(first) = guests.first() else { return Ok(Vec::new()) };
        let pid = first.pid;
        first.refuse_deadly(purpose, number, arguments(first.scratch)[0])?;
        let calls = guests.iter_mut().map(|guest| {
            let arguments = arguments(guest.scratch);
            CallOf { thread: &mut *guest.thread, site: guest.site, arguments }
        });
        let failed = |source| Error::RemoteCall { pid, call: name, purpose: purpose.to_owned(), source };
        remote_calls(number, calls.collect())?.into_iter().map(|result| result.map_err(failed)).collect()
    }

    /// The first `N` bytes of the scratch area.
    pub fn read_scratch<const N: usize>(&self) -> Result<[u8; N]> {
        const { assert!(N <= Seat::BYTES) };
        let mut bytes = [0; N];
        read_memory(self.pid, self.scratch, &mut bytes)?;
        Ok(bytes)
    }

    /// Address of the scratch area: of [`SCRATCH_BYTES`] for a guest that is alone, else of [`Seat::BYTES`].
    pub fn scratch(&self) -> u64 {
        self.scratch
    }

    /// The process that it belongs to.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Makes a process that shares the memory, and nothing else; it has no exit signal and stops at its first
    /// instruction, inside the stub, which writes to no memory in it.
    pub fn clone_with_memory(&mut self) -> Result<Result<Stopped, Errno>> {
        let mut site = self.site;
        site.registers.0.r12 = STUB_CLONE;
        self.thread.set_options(Options::CLONING)?;
        let child = remote_clone(self.thread, &site, libc::SYS_clone, [libc::CLONE_VM as u64, 0, 0, 0, 0, 0])?;
        // The program's own clones are no business of ours.
        self.thread.set_options(Options::PROGRAM)?;
        Ok(child)
    }

    /// The call site for a clone of the program: it can only end in the stub, never go on as the program.
    pub fn expendable_site(&self) -> CallSite {
        let mut site = self.site;
        site.registers.0.r12 = STUB_EXPENDABLE;
        site
    }

    /// Makes the thread's own registers and signal mask its own again.
    pub fn leave(mut self) -> Result<()> {
        self.go_home()
    }

    fn go_home(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.left, true) {
            return Ok(());
        }
        self.thread.set_signal_mask(self.home_mask)?;
        self.thread.set_registers(&self.home)
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        // A thread that cannot be brought home by us is brought home by the stub.
        if let Err(error) = self.go_home() {
            log::warn!("bringing thread {} home: {error}", self.thread.tid());
        }
    }
}
