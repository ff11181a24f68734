//! A program that belongs to nobody.
//!
//! The restorer's child would be our zombie, so an intermediate process restores it, says how that went, and
//! ends: the program then belongs to init or the nearest subreaper. It starts a session of its own, so that the
//! terminal's end is not the program's.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stdin, dup2_stdout, fork, pipe, setsid};

use crate::commands::{print, status_beside_program};
use crate::error::{Error, Result, exit_code};

/// The exit status of a command that only started the program.
pub const DETACHED: u8 = exit_code::DONE;

/// Runs `restore`, which gives the program's pid, in a process of its own, and prints that pid.
pub fn in_intermediate_process(restore: impl FnOnce() -> Result<i32>) -> Result<u8> {
    let failed = |source: Errno| Error::io("start", PathBuf::from("an intermediate process"), source);
    let (from_child, to_parent) = pipe().map_err(failed)?;
    // SAFETY: this process has one thread, so the child may do whatever it likes.
    match unsafe { fork() }.map_err(failed)? {
        ForkResult::Child => {
            drop(from_child);
            std::process::exit(i32::from(intermediate(File::from(to_parent), restore)));
        }
        ForkResult::Parent { child } => {
            drop(to_parent);
            report(File::from(from_child), child)
        }
    }
}

/// The life of the intermediate process; returns its exit code.
fn intermediate(mut to_parent: File, restore: impl FnOnce() -> Result<i32>) -> u8 {
    let restored = leave_terminal().and_then(|()| restore());
    match restored {
        // The pid is four bytes, so it is written at once or, when the parent is gone, not at all.
        Ok(pid) => {
            let _ = to_parent.write_all(&pid.to_ne_bytes());
            DETACHED
        }
        Err(error) => {
            crate::say!("{error}");
            status_beside_program(error.exit_code())
        }
    }
}

/// A session of our own; no input from a terminal that others use; standard output is for the pid alone.
fn leave_terminal() -> Result<()> {
    let failed = |source: Errno| Error::io("leave", PathBuf::from("the terminal"), source);
    setsid().map_err(failed)?;
    if std::io::stdin().is_terminal() {
        let nothing = File::open("/dev/null").map_err(|source| Error::io("open", "/dev/null", source))?;
        dup2_stdin(nothing).map_err(failed)?;
    }
    dup2_stdout(std::io::stderr()).map_err(failed)
}

/// Waits for the intermediate process and prints the pid it found.
fn report(mut from_child: File, child: Pid) -> Result<u8> {
    let status = loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            Err(source) => return Err(Error::io("wait for", PathBuf::from("the intermediate process"), source)),
            Ok(status) => break status,
        }
    };
    match status {
        WaitStatus::Exited(_, code) if code == i32::from(DETACHED) => {
            let mut pid = [0; 4];
            from_child
                .read_exact(&mut pid)
                .map_err(|source| Error::io("read", PathBuf::from("the program's pid"), source))?;
            print(&format!("{}\n", i32::from_ne_bytes(pid)))?;
            Ok(DETACHED)
        }
        // It has said why.
        WaitStatus::Exited(_, code) => Ok(code as u8),
        other => {
            crate::say!("the intermediate process of the restart ended unexpectedly ({other:?})");
            Ok(status_beside_program(exit_code::FAILED))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_the_intermediate_process_becomes_our_exit_status() {
        let status = in_intermediate_process(|| Err(Error::unsupported("descriptor 5", "a test", "ignore it")));
        assert_eq!(status.unwrap(), 124);
    }

    #[test]
    fn a_pid_makes_it_a_success() {
        assert_eq!(in_intermediate_process(|| Ok(4711)).unwrap(), 0);
    }
}
