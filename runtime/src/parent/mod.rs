//! The life of a parent that wants to be invisible: what `ckpt run` and `ckpt restart` do while the program runs.
//!
//! Whoever started us must see the program: signals that a process sends to us go on to it, it stops when we are
//! stopped and we stop when it is, it owns the terminal when we do, and its exit status becomes ours. Signals that
//! the terminal generates reach every process of the foreground group by themselves; these are passed on only
//! when the program is in another group.
//!
//! One thing cannot be told apart: a signal that another process sends to our whole group (`kill %1`, `timeout`)
//! looks like one for us alone, so a program in our group gets it a second time from us.
//!
//! All signals are blocked and read from a descriptor, so nothing is lost between two looks and no handler runs.
//! The program depends on us for nothing: when we are killed, it runs on.
//!
//! As the first process of a pid namespace, the entry point of a container, we are what an init is there, too: we reap
//! all orphans, and our end is the end of all that are left. Signals that are blocked reach us there like everywhere.

pub mod first_process;
mod forward;
mod job_control;
mod last_checkpoint;
mod modes;
pub mod relay;
mod signals;
mod status;
mod terminal;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::descriptor::pidfd_open;
use crate::error::{Error, Result, exit_code};
use crate::image::AtTerminal;
use job_control::Job;
use last_checkpoint::LastCheckpoint;
use relay::Relay;
use status::Event;
use terminal::Terminal;

use signals::Ending;
pub use signals::{Inherited, Signals, block_all, note_dispositions_at_start};

/// A parent that is ready to have a child.
pub struct Parent {
    signals: Signals,
    terminal: Option<Terminal>,
    last: Option<LastCheckpoint>,
}

impl Parent {
    /// Blocks the signals and remembers the terminal. Call it before the program runs, and before there is a second
    /// thread: a signal goes to any thread that does not block it, and threads inherit what is blocked.
    pub fn prepare() -> Result<Parent> {
        Ok(Parent { signals: Signals::block()?, terminal: Terminal::open(), last: None })
    }

    /// SIGTERM is to have a last checkpoint taken, within this time.
    pub fn save_at_term(self, within: Option<Duration>) -> Parent {
        Parent { last: within.map(LastCheckpoint::within), ..self }
    }

    /// What a child that is started by fork has to put back before it executes the program.
    pub fn inherited(&self) -> Inherited {
        self.signals.inherited()
    }

    /// Does `work` while signals have their usual effect on this process: nothing depends on us yet. They are taken by
    /// a thread made for that, so that threads that `work` leaves behind block them. `work` says when there may be one, at the latest
    /// when it takes long.
    ///
    /// The kernel has the first process of a pid namespace ignore what it does not handle: there they end us by an exit code, as
    /// of the signal. Where SIGTERM is to save the program, our exit code says that nothing is lost: what it comes from is
    /// still there.
    pub fn interruptible<T>(&self, work: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
        let inherited = self.inherited();
        let (ended, end) = mpsc::channel::<()>();
        let code_of_term = self.last.is_some().then_some(exit_code::SAVED);
        std::thread::scope(|scope| {
            let mut end = Some(end);
            // Until there is that thread.
            let mut ending = Some(Ending::begin(&inherited, code_of_term));
            let mut begin = || {
                let Some(end) = end.take() else { return };
                drop(ending.take());
                let taker = std::thread::Builder::new().name("signals".to_owned()).spawn_scoped(scope, move || {
                    let _ending = Ending::begin(&inherited, code_of_term);
                    // Nothing is ever sent: it returns when the sender is gone. The thread itself may live on for a moment after `scope`
                    // has returned.
                    let _ = end.recv();
                });
                if let Err(error) = taker {
                    log::warn!("signals have no effect before the program runs: {error}");
                }
            };
            let outcome = work(&mut begin);
            drop(ended);
            outcome
        })
    }

    /// Lets our child `pid` run by calling `release`. If we are the foreground of the terminal and the child leads a
    /// group of its own, that becomes the foreground first, or the group that is named `there`, and the terminal gets the
    /// program's modes: its first access to the terminal finds things in order.
    pub fn release(&mut self, pid: i32, there: AtTerminal, release: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(terminal) = &mut self.terminal {
            terminal.expect(there);
            terminal.hand_over(job_control::own_group(pid));
        }
        let released = release();
        if released.is_err() {
            self.end(pid, true);
        }
        released
    }

    /// Waits until our child `pid` ends and returns its exit status, or 128 + the number of the signal that
    /// ended it.
    pub fn follow(self, pid: i32) -> Result<u8> {
        self.follow_by(pid, &Watch::Child(pidfd_open(pid)?))
    }

    /// The same for process `pid` in a pid namespace below ours, whose first process says by `relay` how it fares.
    pub fn follow_inside(self, pid: i32, relay: Relay) -> Result<u8> {
        self.follow_by(pid, &Watch::Relayed(relay))
    }

    fn follow_by(mut self, pid: i32, watch: &Watch) -> Result<u8> {
        let mut job = Job::new(pid);
        loop {
            // Signals before every event: a continuation must be known before we follow the program into a stop. And
            // a change of status that comes after this look sends a SIGCHLD, which ends the sleep.
            while let Some(signal) = self.signals.take_next()? {
                match &mut self.last {
                    Some(last) if job.is_asked_to_end_by(&signal) => last.ask(pid),
                    _ => job.take_signal(&signal, &mut self.terminal),
                }
            }
            match watch.next_event(pid)? {
                Some(Event::Exited(code)) => {
                    self.end(pid, false);
                    return Ok(code);
                }
                Some(Event::Killed(signal)) => {
                    self.end(pid, true);
                    let last = self.last.as_mut().filter(|_| signal == libc::SIGKILL);
                    if let Some(id) = last.and_then(LastCheckpoint::ended_at) {
                        return last_checkpoint::saved_at(id);
                    }
                    return Ok(status::STATUS_OF_SIGNAL.saturating_add(signal as u8));
                }
                Some(Event::Stopped(signal)) => job.stop_alike(signal, &mut self.terminal),
                Some(Event::Continued) => job.continued(),
                None => {
                    let limits = [
                        job.stop_when_due(&mut self.terminal),
                        job.continue_when_due(),
                        job.look_for_terminal(&mut self.terminal),
                        self.last.as_mut().and_then(|last| last.look(pid)),
                    ];
                    if is_first_process() {
                        let asking = self.last.as_ref().and_then(LastCheckpoint::asking);
                        status::reap_all_but(&[pid, asking.unwrap_or(pid)]);
                    }
                    self.sleep(watch, limits.into_iter().flatten().min())?;
                }
            }
        }
    }

    /// Waits for a signal, the program's end, or `limit`.
    fn sleep(&self, ended: &impl AsFd, limit: Option<Duration>) -> Result<()> {
        let mut waits =
            [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN), PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        // Rounded up: a time-out of zero would be a busy loop.
        let limit_ms = limit.map(|limit| limit.as_millis() + 1);
        let timeout = limit_ms.and_then(|ms| PollTimeout::try_from(ms).ok()).unwrap_or(PollTimeout::NONE);
        match poll(&mut waits, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(source) => Err(Error::io("wait for", PathBuf::from("the program"), source)),
        }
    }

    fn end(&mut self, pid: i32, killed: bool) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(pid);
            if killed {
                terminal.restore_modes();
            }
        }
    }
}

/// Whether this process is the first one of its pid namespace: orphans are its children, and it has no signal with a default
/// action.
fn is_first_process() -> bool {
    std::process::id() == 1
}

/// How we hear of the program.
enum Watch {
    /// It is our child; the descriptor is readable when it has ended, even if that sends no SIGCHLD.
    Child(OwnedFd),
    /// We are told.
    Relayed(Relay),
}

impl Watch {
    fn next_event(&self, pid: i32) -> Result<Option<Event>> {
        match self {
            Watch::Child(_) => status::next_event(pid),
            Watch::Relayed(relay) => relay.next_event(),
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Watch::Child(ended) => ended.as_fd(),
            Watch::Relayed(relay) => relay.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    /// How a process ends that does `work` and exits with what that returns.
    fn end_of(work: impl FnOnce() -> i32) -> WaitStatus {
        // SAFETY: the C library keeps its allocator usable after a fork, and nobody holds a lock of ours.
        match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => waitpid(child, None).unwrap(),
            ForkResult::Child => {
                // SAFETY: alarm takes a number, and its signal ends this process should it hang.
                unsafe { libc::alarm(20) };
                let status = work();
                // SAFETY: _exit ends this process.
                unsafe { libc::_exit(status) }
            }
        }
    }

    /// True also for a thread that has just ended.
    fn blocks_sigterm(task: &std::path::Path) -> bool {
        let Ok(status) = std::fs::read_to_string(task.join("status")) else { return true };
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (libc::SIGTERM - 1)) != 0
    }

    #[test]
    fn a_thread_that_interruptible_work_leaves_behind_blocks_the_signals() {
        let ended = end_of(|| {
            let parent = Parent::prepare().unwrap();
            let (_stay, until) = mpsc::channel::<()>();
            parent.interruptible(|listen| {
                listen();
                std::thread::spawn(move || until.recv())
            });
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let blocked: Vec<bool> = tasks.map(|task| blocks_sigterm(&task.unwrap().path())).collect();
            i32::from(blocked.len() < 2 || blocked.contains(&false))
        });
        assert!(matches!(ended, WaitStatus::Exited(_, 0)), "{ended:?}");
    }

    #[test]
    fn interruptible_work_is_ended_by_a_signal_and_a_prepared_parent_is_not() {
        let ended = end_of(|| {
            let parent = Parent::prepare().unwrap();
            raise(Signal::SIGHUP).unwrap();
            assert!(parent.signals.take_next().unwrap().is_some());
            parent.interruptible(|listen| {
                listen();
                // SAFETY: as above.
                unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
                loop {
                    nix::unistd::pause();
                }
            })
        });
        assert!(matches!(ended, WaitStatus::Signaled(_, Signal::SIGTERM, _)), "{ended:?}");
    }
}
