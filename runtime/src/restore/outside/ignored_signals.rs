//! Signals that whoever restarts wants ignored, as `nohup` and the `&` of a script do.
//!
//! A program that is started inherits what is ignored, and keeps it unless it sets an action of its own. So one that had
//! the default action keeps what the restarter ignores; a handler stays.

use nix::errno::Errno;

use crate::image::{ProcessImage, SignalAction};

/// What starters ignore for others.
const SIGNALS: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];

/// Makes the default actions of `image` what this process would hand on to a program that it executes.
pub fn keep(image: &mut ProcessImage) {
    SIGNALS.into_iter().filter(|&signal| is_ignored(signal)).for_each(|signal| ignore(image, signal));
}

fn ignore(image: &mut ProcessImage, signal: i32) {
    let ignored = SignalAction { signal, handler: libc::SIG_IGN as u64, flags: 0, restorer: 0, mask: 0 };
    match image.signal_actions.iter_mut().find(|action| action.signal == signal) {
        Some(action) if action.handler == libc::SIG_DFL as u64 => *action = ignored,
        Some(_) => {}
        None => image.signal_actions.push(ignored),
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: zero is a valid `struct sigaction`, and it is only written to.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action changes nothing; the old one is written to `action`.
    let asked = Errno::result(unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) });
    asked.is_ok() && action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn a_handler_stays_and_a_default_action_becomes_ignored() {
        let mut image = sample::process(&Machine::this().unwrap());
        let action = |signal, handler| SignalAction { signal, handler, flags: 0, restorer: 0, mask: 0 };
        image.signal_actions = vec![action(libc::SIGHUP, 0x1234), action(libc::SIGINT, 0)];
        SIGNALS.into_iter().for_each(|signal| ignore(&mut image, signal));
        let expected = [action(libc::SIGHUP, 0x1234), action(libc::SIGINT, 1), action(libc::SIGQUIT, 1)];
        assert_eq!(image.signal_actions, expected);
    }
}
