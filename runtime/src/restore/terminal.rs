//! The foreground of the terminal.
//!
//! A program that led its process group leads one again, and a group of its own is a background group: reading from
//! the terminal would stop it. So the restarter, if it is in the foreground, hands the terminal over as a shell does.

use std::io::{IsTerminal, stdin};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use crate::image::{ProcessImage, Role};

/// Puts the rebuilt process group into the foreground where the restarter's own is.
pub fn hand_over(image: &ProcessImage) {
    let input = stdin();
    if image.role != Role::GroupLeader || !input.is_terminal() || tcgetpgrp(&input) != Ok(getpgrp()) {
        return;
    }
    if let Err(error) = tcsetpgrp(&input, Pid::from_raw(image.pid)) {
        log::warn!("process {} stays in the background of the terminal: {error}", image.pid);
    }
}
