//! Stopping and continuing together with the program.
//!
//! A shell sees only us, so we stop when the program has stopped, by the same signal, and on SIGCONT the program
//! continues before anything else happens. Without a terminal there is no shell that would continue us: then we
//! stop only if the stop came through us, because whoever sent it knows our pid.

use std::time::{Duration, Instant};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, pthread_sigmask, sigaction};
use nix::sys::signalfd::siginfo;
use nix::unistd::{Pid, getpgid, getpgrp, getpid};

use super::forward::{self, Source};
use super::terminal::Terminal;

/// A shell continues the whole group, us first or the program first. This is how long we wait for the second before
/// we continue the program ourselves: it shall not hear one continuation twice.
const GROUP_CONTINUATION_GRACE: Duration = Duration::from_millis(20);

/// How long we wait before we stop with a program that has asked for the terminal in the background. What it has seen there may be
/// the keys of the shell's `fg`, and a shell that has just taken us for a running job would continue neither of us.
const TERMINAL_GRACE: Duration = Duration::from_millis(100);

/// How often we look whether a terminal that the program misses has come back. A shell's `fg` of a job that runs tells it
/// nothing, and nothing else does: a program that waits for a key by `poll` would wait for ever, because the terminal
/// collects lines until the program's modes are set.
const LOOK_FOR_TERMINAL: Duration = Duration::from_millis(200);

/// The group of process `pid`, if it is another one than ours.
pub fn own_group(pid: i32) -> Option<Pid> {
    getpgid(Some(Pid::from_raw(pid))).ok().filter(|&group| group != getpgrp())
}

/// The program as something that is stopped and continued.
pub struct Job {
    pid: i32,
    /// A stop signal has been passed on to it.
    asked_to_stop: bool,
    /// We have been continued and the program, in the same group, not yet: when to do it ourselves.
    continue_at: Option<Instant>,
    /// The program has been stopped by this signal because it lacks the terminal: when to stop as well.
    stop_at: Option<(Instant, i32)>,
}

impl Job {
    /// The job of process `pid`.
    pub fn new(pid: i32) -> Job {
        Job { pid, asked_to_stop: false, continue_at: None, stop_at: None }
    }

    /// Whether a process that is not of the program has sent us SIGTERM.
    pub fn is_asked_to_end_by(&self, signal: &siginfo) -> bool {
        signal.ssi_signo as i32 == libc::SIGTERM
            && Source::of(signal) == Source::Process
            && !forward::descends_from(signal.ssi_pid as i32, self.pid)
    }

    /// Does with a signal that was sent to us what the program should get from it.
    pub fn take_signal(&mut self, signal: &siginfo, terminal: &mut Option<Terminal>) {
        let number = signal.ssi_signo as i32;
        let group = own_group(self.pid);
        match Source::of(signal) {
            Source::Child | Source::Ourselves => {}
            Source::Process if number == libc::SIGCONT => self.proceed(group, terminal),
            Source::Process => {
                let from_below = group.is_none() && forward::descends_from(signal.ssi_pid as i32, self.pid);
                if !from_below {
                    self.asked_to_stop |= is_stop(number);
                    forward::to_process(self.pid, signal);
                }
            }
            Source::Terminal => {
                if is_stop(number) {
                    self.continue_at = None;
                }
                if let Some(group) = group {
                    forward::to_group(group, number);
                }
            }
        }
    }

    /// Continues the program; with the terminal as it expects it, if that has come back to us.
    fn proceed(&mut self, group: Option<Pid>, terminal: &mut Option<Terminal>) {
        if let Some(terminal) = terminal {
            terminal.hand_over(group);
        }
        self.resume(group);
    }

    /// Continues the program, or waits for somebody else to do so if it is in our group.
    fn resume(&mut self, group: Option<Pid>) {
        self.stop_at = None;
        match group {
            Some(group) => forward::to_group(group, libc::SIGCONT),
            None if forward::seems_stopped(self.pid) => {
                self.continue_at = Some(Instant::now() + GROUP_CONTINUATION_GRACE);
            }
            None => {}
        }
    }

    /// The program runs again.
    pub fn continued(&mut self) {
        self.continue_at = None;
        self.stop_at = None;
    }

    /// Continues the program if that is due, and says how long that can wait otherwise.
    pub fn continue_when_due(&mut self) -> Option<Duration> {
        let left = self.continue_at?.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        self.continue_at = None;
        if forward::seems_stopped(self.pid) {
            // It may have ended meanwhile, which the loop is about to see.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGCONT);
        }
        None
    }

    /// Gives the program the terminal that it misses if that has come back, and says otherwise when to look again.
    pub fn look_for_terminal(&self, terminal: &mut Option<Terminal>) -> Option<Duration> {
        let terminal = terminal.as_mut()?;
        let group = own_group(self.pid);
        if terminal.is_owed() {
            terminal.hand_over(group);
        }
        terminal.is_missed(group).then_some(LOOK_FOR_TERMINAL)
    }

    /// The program has been stopped by `signal`: stop as well, if somebody is there to notice.
    pub fn stop_alike(&mut self, signal: i32, terminal: &mut Option<Terminal>) {
        let noticed = std::mem::take(&mut self.asked_to_stop) || terminal.is_some();
        // With a continuation on its way, this is the stop that it ends.
        if !noticed || self.continue_at.is_some() || !forward::seems_stopped(self.pid) {
            return;
        }
        if [libc::SIGTTIN, libc::SIGTTOU].contains(&signal) && terminal.is_some() {
            self.stop_at = Some((Instant::now() + TERMINAL_GRACE, signal));
            return;
        }
        self.stop(signal, terminal);
    }

    /// Stops if the program still lacks the terminal when that is due, and says how long that can wait otherwise.
    pub fn stop_when_due(&mut self, terminal: &mut Option<Terminal>) -> Option<Duration> {
        let (due, signal) = self.stop_at?;
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        self.stop_at = None;
        if !forward::seems_stopped(self.pid) {
            return None;
        }
        let group = own_group(self.pid);
        if terminal.as_ref().is_some_and(Terminal::is_owed) {
            self.proceed(group, terminal);
        } else if terminal.as_ref().is_some_and(|terminal| terminal.is_with(group)) {
            self.resume(group);
        } else {
            self.stop(signal, terminal);
        }
        None
    }

    fn stop(&self, signal: i32, terminal: &mut Option<Terminal>) {
        if let Some(terminal) = terminal {
            terminal.take_back_while_stopped(self.pid);
        }
        stop_ourselves(Signal::try_from(signal).unwrap_or(Signal::SIGSTOP));
    }
}

fn is_stop(signal: i32) -> bool {
    [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal)
}

/// Stops this process by `signal`; returns when it has been continued.
fn stop_ourselves(signal: Signal) {
    if signal != Signal::SIGSTOP {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code of ours.
        let _ = unsafe { sigaction(signal, &default) };
    }
    let _ = kill(getpid(), signal);
    let mut alone = SigSet::empty();
    alone.add(signal);
    // A pending signal takes effect when it is unblocked, before the call returns.
    let _ = pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&alone), None);
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&alone), None);
}
