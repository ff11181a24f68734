//! The controlling terminal: who is its foreground, and in which modes we found it.
//!
//! Every call here may fail because the terminal has gone away; the program matters more, so failures are
//! ignored. SIGTTOU is blocked like all signals, so that we may give the terminal away from the background.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of our session.
pub struct Terminal {
    file: File,
    modes: Option<Termios>,
    /// The group that we gave the foreground to.
    given_to: Option<Pid>,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub fn open() -> Option<Terminal> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY | libc::O_CLOEXEC).open("/dev/tty");
        let file = file.ok()?;
        let foreground = tcgetpgrp(&file).ok()? == getpgrp();
        let modes = if foreground { tcgetattr(&file).ok() } else { None };
        Some(Terminal { file, modes, given_to: None })
    }

    /// Whether our group is the foreground.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|foreground| foreground == getpgrp())
    }

    /// Makes `group` the foreground, if that is ours to give.
    pub fn give_to(&mut self, group: Pid) {
        if self.is_ours() && tcsetpgrp(&self.file, group).is_ok() {
            self.given_to = Some(group);
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

    /// Puts the modes back that the terminal had when we started: a program that was killed could not.
    pub fn restore_modes(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetattr(&self.file, SetArg::TCSADRAIN, modes);
        }
    }
}

fn is_empty(group: Pid) -> bool {
    kill(Pid::from_raw(-group.as_raw()), None) == Err(Errno::ESRCH)
}
