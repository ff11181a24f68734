//! A restart in a pid namespace of the program's own.
//!
//! ```text
//! ckpt restart ── maker ── first process ── program
//! ```
//!
//! The maker makes the namespaces, which it could not leave again, and its first child is their first process: this
//! command once more, which rebuilds the program in there and is its parent. The maker ends when the program runs; then
//! `ckpt restart` has the first process as its child, until one of them ends.
//!
//! Until the program runs, the end of each is the end of all that come after it.

use std::ffi::OsString;
use std::fs::read_to_string;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_name, set_pdeathsig};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getgroups, getpid, getppid};

use crate::commands::restart::arguments::FIRST_PROCESS;
use crate::error::{Error, Result, exit_code};
use crate::namespace::{self, Kind};
use crate::packets::Packet;
use crate::parent::first_process;
use crate::parent::relay::{Message, Relay};
use crate::proc::task;
use crate::restore::{Place, Rebuilt};

/// A program that is complete in a pid namespace of its own. Dropping it ends the program.
#[derive(Debug)]
pub struct Inside {
    relay: Relay,
    maker: Pid,
    kind: Kind,
    inner: i32,
    outer: i32,
}

impl Inside {
    /// Makes the namespaces and has the program of the command line rebuilt there.
    pub fn build() -> Result<Inside> {
        let failed = |source: Errno| Error::io("start", "the maker of the pid namespace", source);
        let kind = Kind::for_this_process()?;
        let groups = getgroups().map_err(failed)?.into_iter().map(|group| group.as_raw()).collect();
        let groups = kind.user.then_some(groups);
        // Without it, whoever reaps orphans here would have the first process from the start.
        set_child_subreaper(true).map_err(failed)?;
        let (outside, inside) = Relay::pair()?;
        let here = getpid();
        // SAFETY: what the child does until it executes another program allocates, which the C library allows behind its
        // own fork, and takes no lock of ours: the one other thread there may be is the one that waits for signals.
        let maker = match unsafe { fork() }.map_err(failed)? {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                drop(outside);
                be_maker(here, kind, inside)
            }
        };
        drop(inside);
        // A maker that is gone already has said why.
        let _ = outside.say(&Message::Begin { groups }, None);
        let (inner, outer) = complete(&outside).inspect_err(|_| end(maker))?;
        Ok(Inside { relay: outside, maker, kind, inner, outer })
    }

    /// Its pid as this process sees it.
    pub fn pid(&self) -> i32 {
        self.outer
    }

    /// What a process group of the program is as this process sees it.
    pub fn outer_group(&self, inner: i32) -> Option<i32> {
        let mut unseen = vec![self.outer];
        while let Some(pid) = unseen.pop() {
            let status = task::text(pid, "status").unwrap_or_default();
            let groups = task::status_value(&status, "NSpgid").unwrap_or_default();
            let mut numbers = groups.split_whitespace().filter_map(|word| word.parse::<i32>().ok());
            let outer = numbers.next();
            if numbers.next_back() == Some(inner) {
                return outer;
            }
            unseen.extend(task::children(pid).unwrap_or_default());
        }
        None
    }

    /// Lets it run. From then on it depends on nobody outside.
    pub fn release(&self) -> Result<()> {
        self.relay.say(&Message::Release, None)?;
        let outcome = match self.relay.listen()? {
            Some((Message::Runs, _)) => Ok(()),
            other => Err(unexpected(other)),
        };
        end(self.maker);
        outcome
    }

    /// What is told of it from now on.
    pub fn into_relay(self) -> Relay {
        self.relay
    }

    /// What the program has to do without in there, in one line.
    pub fn what_is_given_up(&self) -> String {
        let Inside { inner, outer, .. } = self;
        let users = match self.kind.user {
            true => ", set-user-ID programs have no effect there, supplementary groups have no numbers there",
            false => "",
        };
        format!(
            "process {inner} has a pid namespace of its own and is {outer} outside: it sees no other processes{users}"
        )
    }
}

/// Ends a process that was only needed until now. It is a child of ours.
fn end(maker: Pid) {
    // It may have ended by itself.
    let _ = kill(maker, Signal::SIGKILL);
    while waitpid(maker, None) == Err(Errno::EINTR) {}
}

/// Waits until the program is complete, and gives its pid inside and outside.
fn complete(outside: &Relay) -> Result<(i32, i32)> {
    match outside.listen()? {
        Some((Message::Complete, descriptors)) if descriptors.len() == 1 => pids(&descriptors[0]),
        other => Err(unexpected(other)),
    }
}

fn unexpected(said: Option<Packet<Message>>) -> Error {
    match said {
        Some((Message::Failed { message, exit_code }, _)) => Error::Inside { message, exit_code },
        _ => Error::Inside {
            message: "the first process of the program's pid namespace ended unexpectedly".to_owned(),
            exit_code: exit_code::FAILED,
        },
    }
}

/// The innermost and the outermost pid of the process behind a pidfd.
fn pids(program: &OwnedFd) -> Result<(i32, i32)> {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let text = read_to_string(&path).map_err(|source| Error::io("read", &path, source))?;
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or("");
    let numbers: Vec<i32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        [outer, .., inner] => Ok((*inner, *outer)),
        _ => Err(Error::io("find the program's pid in", path, std::io::Error::from(std::io::ErrorKind::InvalidData))),
    }
}

/// The life of the maker.
fn be_maker(parent: Pid, kind: Kind, inside: Relay) -> ! {
    crate::parent::block_all();
    let outcome = make(parent, kind, &inside);
    let child = match outcome {
        Ok(child) => child,
        Err(error) => {
            inside.say_failed(&error);
            leave(1)
        }
    };
    drop(inside);
    while waitpid(child, None) == Err(Errno::EINTR) {}
    leave(0)
}

fn make(parent: Pid, kind: Kind, inside: &Relay) -> Result<Pid> {
    let failed = |source: Errno| Error::io("start", "the first process of the pid namespace", source);
    namespace::make(kind)?;
    // After the change of user namespace, which would undo it.
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    if getppid() != parent {
        leave(1);
    }
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(failed)? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let error = become_first_process(kind, inside);
            inside.say_failed(&error);
            leave(1)
        }
    }
}

/// Executes this command once more as the first process; returns only why that was not possible.
fn become_first_process(kind: Kind, inside: &Relay) -> Error {
    let prepared = set_pdeathsig(Signal::SIGKILL)
        .map_err(|source| Error::io("be", "the first process of the pid namespace", source))
        .and_then(|()| namespace::become_first_process(kind))
        .and_then(|()| if kind.user { namespace::keep_capabilities_over_exec() } else { Ok(()) })
        .and_then(|()| inside.leave_open());
    let relay = match prepared {
        Ok(relay) => relay,
        Err(error) => return error,
    };
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // Behind the command's name, so that it is an option whatever follows.
    let place = words.iter().skip(1).position(|word| word == "restart").map_or(words.len(), |before| before + 2);
    words.insert(place, format!("--{FIRST_PROCESS}={relay}").into());
    let mut command = Command::new("/proc/self/exe");
    command.arg0(&words[0]).args(&words[1..]);
    Error::io("execute", "/proc/self/exe", command.exec())
}

fn leave(status: i32) -> ! {
    // SAFETY: ends this process without running what the one that it was forked from has left for its own end.
    unsafe { libc::_exit(status) }
}

/// The life of the first process, whose end of the relay is descriptor `relay`: has `rebuild` make the program.
pub fn be_first_process(relay: RawFd, rebuild: impl FnOnce(Place) -> Result<Rebuilt>) -> Result<u8> {
    crate::parent::block_all();
    let failed = |source| Error::io("be", "the first process of a pid namespace", source);
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    let relay = Relay::left_at(relay)?;
    // The kernel would show it as `exe`.
    let _ = set_name(c"ckpt");
    let Some((Message::Begin { groups }, _)) = relay.listen()? else { return Ok(exit_code::FAILED) };
    let complete = rebuild(Place::OwnNamespace { groups }).and_then(|rebuilt| {
        relay.say_complete(rebuilt.pid())?;
        Ok(rebuilt)
    });
    let outcome = complete.and_then(|rebuilt| match relay.listen()? {
        Some((Message::Release, _)) => release(rebuilt, &relay),
        _ => Err(unexpected(None)),
    });
    match outcome {
        Ok(pid) => first_process::live(pid, relay),
        Err(error) => {
            relay.say_failed(&error);
            Ok(error.exit_code())
        }
    }
}

/// From here on the program lives as long as it likes.
fn release(rebuilt: Rebuilt, relay: &Relay) -> Result<i32> {
    let pid = rebuilt.pid();
    set_pdeathsig(None).map_err(|source| Error::io("outlive", "ckpt restart", source))?;
    super::release_with_progress(rebuilt)?;
    // The program runs, and our end would be its end: nothing may fail any more.
    log::logger().flush();
    if let Err(error) = first_process::hold_nothing(relay) {
        log::warn!("{error}");
    }
    // Whoever does not hear it any more is gone.
    let _ = relay.say(&Message::Runs, None);
    // In here, where the agent has to be.
    super::automatic::go_on(pid);
    Ok(pid)
}
