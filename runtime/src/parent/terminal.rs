//! The controlling terminal: who is its foreground, in which modes we found it, and in which ones the program works.
//!
//! A shell puts its own modes back when a job of its stops or is killed by a signal, and it does so for us. A program in
//! our group is such a job as well. One in a group of its own is our job: then we do what the shell does.
//!
//! Every call here may fail because the terminal has gone away; the program matters more, so failures are
//! ignored. SIGTTOU is blocked like all signals, so that we may give the terminal away from the background.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc::termios;
use nix::sys::signal::kill;
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::modes;
use crate::image::{AtTerminal, TerminalModes};
use crate::tty;

/// The controlling terminal of our session.
pub struct Terminal {
    file: File,
    /// The modes in which it came to us.
    found: Option<termios>,
    /// The group that we gave the foreground to.
    given_to: Option<Pid>,
    /// The program's modes, while they are not those of the terminal.
    awaited: Awaited,
    /// The process group that is to have the foreground first, if it is not the program's.
    first: Option<Pid>,
    /// The program was to have the terminal when somebody else had it.
    owed: bool,
}

/// Modes that the program is to find when it has the foreground.
enum Awaited {
    /// It has set what it wants.
    Nothing,
    /// Those of its checkpoint.
    Captured(TerminalModes),
    /// Those in which it left the terminal when it stopped.
    Left(termios),
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub fn open() -> Option<Terminal> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY | libc::O_CLOEXEC).open("/dev/tty");
        let mut terminal = Terminal {
            file: file.ok()?,
            found: None,
            given_to: None,
            awaited: Awaited::Nothing,
            first: None,
            owed: false,
        };
        tcgetpgrp(&terminal.file).ok()?;
        terminal.come_by();
        Some(terminal)
    }

    /// Whether our group is the foreground.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|foreground| foreground == getpgrp())
    }

    /// Whether the program has the terminal: `group` is its process group if that is another one than ours.
    pub fn is_with(&self, group: Option<Pid>) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|foreground| foreground == group.unwrap_or_else(getpgrp))
    }

    /// Whether our group has become the foreground since the program was to have the terminal in vain.
    pub fn is_owed(&self) -> bool {
        self.owed && self.is_ours()
    }

    /// Whether somebody else has the terminal, and `group`, the program's if it has one of its own, lacks something for as
    /// long as we do not notice that it has come back.
    pub fn is_missed(&self, group: Option<Pid>) -> bool {
        self.owed && (group.is_some() || !matches!(self.awaited, Awaited::Nothing)) && tcgetpgrp(&self.file).is_ok()
    }

    /// The program is to find this as soon as we have the foreground.
    pub fn expect(&mut self, there: AtTerminal) {
        if let Some(modes) = there.modes {
            self.awaited = Awaited::Captured(modes);
        }
        self.first = there.foreground.map(Pid::from_raw);
    }

    /// Makes the terminal what the program expects, if it is ours; `group` is the program's if it has one of its own, and
    /// becomes the foreground.
    pub fn hand_over(&mut self, group: Option<Pid>) {
        self.owed = !self.is_ours();
        if self.owed {
            return;
        }
        // A program in our group has been continued together with us, and may have set modes of its own already.
        if group.is_some() {
            self.come_by();
        }
        let wanted = match std::mem::replace(&mut self.awaited, Awaited::Nothing) {
            Awaited::Nothing => None,
            Awaited::Captured(modes) => tty::modes(&self.file).ok().map(|now| modes::at_terminal(&modes, now)),
            Awaited::Left(modes) => Some(modes),
        };
        if let Some(Err(error)) = wanted.map(|wanted| tty::set_modes(&self.file, &wanted)) {
            log::warn!("the terminal does not take the program's modes: {error}");
        }
        // One that is gone by now has nobody who could miss it.
        let mut heirs = self.first.take().into_iter().chain(group);
        if let Some(heir) = heirs.find(|&heir| tcsetpgrp(&self.file, heir).is_ok()) {
            self.given_to = Some(heir);
        }
    }

    /// Becomes the foreground again, if the program has it from us or its last holder is gone.
    pub fn take_back(&mut self, pid: i32) {
        let Some(given_to) = self.given_to.take() else { return };
        let Ok(foreground) = tcgetpgrp(&self.file) else { return };
        if foreground == given_to || foreground.as_raw() == pid || is_empty(foreground) {
            let _ = tcsetpgrp(&self.file, getpgrp());
        }
    }

    /// The program `pid` has stopped: if it has the foreground from us, takes it back, with the modes that were found.
    pub fn take_back_while_stopped(&mut self, pid: i32) {
        let was_given = self.given_to.is_some();
        self.take_back(pid);
        if was_given && self.is_ours() {
            if let Ok(modes) = tty::modes(&self.file) {
                self.awaited = Awaited::Left(modes);
            }
            self.restore_modes();
        }
    }

    /// Puts the modes back that the terminal came to us with: a program that was killed could not.
    pub fn restore_modes(&self) {
        if let Some(modes) = self.found.as_ref().filter(|_| self.is_ours()) {
            let _ = tty::set_modes(&self.file, modes);
        }
    }

    /// Remembers the modes, if the terminal is ours.
    fn come_by(&mut self) {
        if self.is_ours() {
            self.found = tty::modes(&self.file).ok().or(self.found);
        }
    }
}

fn is_empty(group: Pid) -> bool {
    kill(Pid::from_raw(-group.as_raw()), None) == Err(Errno::ESRCH)
}
