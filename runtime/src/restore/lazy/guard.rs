//! The guard: holds copies of the userfaultfds, so that missing pages stay missing when the filler is killed.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::link::{Link, Word};
use crate::restore::lazy::unfinished::{Unfinished, end_all, leave};

/// The life of the guard.
pub fn live(filler: Pid, from_restarter: Link, to_filler: Link) -> ! {
    // Held until this process ends.
    let mut userfaultfds: Vec<OwnedFd> = Vec::new();
    let mut programs: Vec<Unfinished> = Vec::new();
    let mut restarter = Some(from_restarter);
    loop {
        let mut waits = vec![PollFd::new(to_filler.as_fd(), PollFlags::POLLIN)];
        waits.extend(restarter.iter().map(|link| PollFd::new(link.as_fd(), PollFlags::POLLIN)));
        match poll(&mut waits, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => break,
        }
        let is_ready = |wait: &PollFd<'_>| wait.any().unwrap_or(true);
        let (filler_spoke, restarter_spoke) = (is_ready(&waits[0]), waits.get(1).is_some_and(is_ready));
        drop(waits);
        // What comes first is what there is to be held.
        if restarter_spoke && let Some(link) = &restarter {
            match link.listen() {
                Ok(Some((Word::Process { pid, .. }, descriptors))) => {
                    if let Ok([userfaultfd, pidfd]) = <[OwnedFd; 2]>::try_from(descriptors) {
                        userfaultfds.push(userfaultfd);
                        programs.push(Unfinished { pid, pidfd });
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => restarter = None,
            }
        }
        if filler_spoke {
            match to_filler.listen() {
                Ok(Some((_, descriptors))) => userfaultfds.extend(descriptors),
                Ok(None) | Err(_) => break,
            }
        }
    }
    let status = loop {
        match waitpid(filler, None) {
            Err(Errno::EINTR) => {}
            status => break status,
        }
    };
    if !matches!(status, Ok(WaitStatus::Exited(_, 0))) {
        // One that has ended with an error has said why.
        if let (Some(program), Ok(WaitStatus::Signaled(_, signal, _))) = (programs.first(), status) {
            let pid = program.pid;
            crate::say!("the process that brings the memory of process {pid} was ended by {signal}: so is that");
        }
        end_all(&programs);
    }
    leave(0)
}
