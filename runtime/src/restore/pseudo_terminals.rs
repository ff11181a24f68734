//! Makes the job's own pseudo-terminals anew, as they were, before there is a process that could use them.
//!
//! The kernel gives a new pair the lowest number that is free. Programs remember /dev/pts/N, so pairs are made until N comes
//! up; those that come before are given back. A number that somebody else has is not worth the whole job: it goes on with
//! another, and a line says so.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};

use nix::errno::Errno;
use nix::sys::stat::makedev;

use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::{JobImage, LineModes, ProcessImage, PseudoTerminal};
use crate::pseudo_terminal::queues::{Line, Queues};
use crate::pseudo_terminal::{self as pair, Modes};

const IOCTL: Call = Call("ioctl", libc::SYS_ioctl);
/// Pairs that are made at most to come to a number.
const MADE_MAX: usize = 512;

/// The pairs of a job in its order. The job has them by itself when its processes are there; then this is to be dropped.
#[derive(Debug)]
pub struct PseudoTerminals {
    pairs: Vec<Pair>,
}

#[derive(Debug)]
struct Pair {
    master: File,
    /// While there are no others.
    slave: Option<OwnedFd>,
}

impl PseudoTerminals {
    /// Makes those of `job`, with what waited in them. Nobody can be kept from opening them yet.
    pub fn make(job: &JobImage) -> Result<PseudoTerminals> {
        let wanted = &job.objects.pseudo_terminals;
        let masters = numbered(wanted)?;
        let pairs = masters.into_iter().zip(wanted).map(|(master, terminal)| complete(master, terminal));
        Ok(PseudoTerminals { pairs: pairs.collect::<Result<_>>()? })
    }

    /// The numbers of the masters in this process.
    pub fn numbers(&self) -> impl Iterator<Item = RawFd> {
        self.pairs.iter().map(|pair| pair.master.as_raw_fd())
    }

    /// Keeps others from opening those that nobody could open. All processes of the job have opened theirs.
    pub fn shut(&self, job: &JobImage) -> Result<()> {
        for (Pair { master, slave }, terminal) in self.pairs.iter().zip(&job.objects.pseudo_terminals) {
            if let Some(slave) = slave.as_ref().filter(|_| terminal.exclusive) {
                pair::set_exclusive(slave, true).map_err(failed(terminal))?;
            }
            if terminal.locked {
                pair::set_locked(master, true).map_err(failed(terminal))?;
            }
        }
        Ok(())
    }
}

/// Has the leader of a session put the process group into the foreground that was there. All processes have joined their groups,
/// and block signals; `first_terminal` is the number of the first master in them.
pub fn give_foreground(
    process: &mut HalfBuilt,
    image: &ProcessImage,
    job: &JobImage,
    first_terminal: RawFd,
) -> Result<()> {
    for (number, terminal) in (first_terminal..).zip(&job.objects.pseudo_terminals) {
        let Some(group) = terminal.foreground.filter(|_| terminal.session == Some(image.pid)) else { continue };
        let at = process.put(&group.to_ne_bytes())?;
        match process.try_call(0, IOCTL, &[number as u64, libc::TIOCSPGRP, at])? {
            Ok(_) => {}
            // As it was: nobody is left in that group.
            Err(Errno::ESRCH) => log::debug!("process group {group} is gone, which had the foreground"),
            Err(source) => return Err(process.refused(IOCTL, format_args!("foreground for group {group}"), source)),
        }
    }
    Ok(())
}

/// A master for each of `wanted`, with its number where that can be had.
fn numbered(wanted: &[PseudoTerminal]) -> Result<Vec<File>> {
    let mut made: Vec<(u32, File)> = Vec::new();
    let is_free = |terminal: &PseudoTerminal| fs::symlink_metadata(name(terminal.number)).is_err();
    let highest = wanted.iter().filter(|terminal| is_free(terminal)).map(|terminal| terminal.number).max();
    while made.len() < MADE_MAX && highest.is_some_and(|highest| made.last().is_none_or(|(last, _)| *last < highest)) {
        match new_master() {
            Ok(next) => made.push(next),
            // There is no room for more of them: then with what there is.
            Err(error) if !made.is_empty() => {
                log::info!("{error}");
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let mut found: Vec<Option<(u32, File)>> = wanted
        .iter()
        .map(|terminal| {
            let place = made.iter().position(|(number, _)| *number == terminal.number);
            place.map(|place| made.swap_remove(place))
        })
        .collect();
    made.sort_by_key(|(number, _)| *number);
    let mut spare = made.into_iter();
    for (slot, terminal) in found.iter_mut().zip(wanted) {
        if slot.is_some() {
            continue;
        }
        let (number, master) = match spare.next() {
            Some(next) => next,
            None => new_master()?,
        };
        log::warn!(
            "the job's terminal {} has the name {} now: somebody else has the old one. Programs that remember it (TTY, \
             lists of who is logged in) mean another terminal",
            name(terminal.number),
            name(number)
        );
        *slot = Some((number, master));
    }
    Ok(found.into_iter().flatten().map(|(_, master)| master).collect())
}

fn new_master() -> Result<(u32, File)> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/ptmx");
    let master = opened.map_err(|source| Error::io("make a terminal by", "/dev/ptmx", source))?;
    let number = pair::number(&master).map_err(|source| Error::io("ask for the number of", "/dev/ptmx", source))?;
    Ok((number, master))
}

/// Makes a new pair what `terminal` was.
fn complete(master: File, terminal: &PseudoTerminal) -> Result<Pair> {
    let failed = |source| self::failed(terminal)(source);
    let modes = modes(&terminal.line);
    pair::set_locked(&master, false).map_err(failed)?;
    pair::set_modes(&master, &modes).map_err(failed)?;
    pair::set_size(&master, terminal.size).map_err(failed)?;
    let mut slave = None;
    if terminal.opened {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let opened = pair::open_slave(&master, flags).map_err(failed)?;
        let queues = Queues {
            output: terminal.output.clone(),
            input: terminal.input.clone(),
            ends: terminal.input_ends.clone(),
            stopped: terminal.stopped,
            suspended: terminal.suspended,
        };
        let line = Line { master: master.as_fd(), slave: opened.as_fd(), modes: &modes };
        line.fill(&queues).map_err(failed)?;
        slave = Some(opened);
    }
    if terminal.packets {
        pair::set_packet_mode(&master, true).map_err(failed)?;
    }
    let number = pair::number(&master).map_err(failed)?;
    if let Err(error) = give_rights(number, terminal) {
        log::warn!("{} has other rights than before: {error}", name(number));
    }
    Ok(Pair { master, slave })
}

/// Owner and mode, where they differ: others may not be given away.
fn give_rights(number: u32, terminal: &PseudoTerminal) -> std::io::Result<()> {
    let path = name(number);
    let now = fs::symlink_metadata(&path)?;
    if now.rdev() != makedev(pair::SLAVES, number.into()) {
        return Ok(());
    }
    if (now.uid(), now.gid()) != terminal.owner {
        chown(&path, Some(terminal.owner.0), Some(terminal.owner.1))?;
    }
    if now.mode() & 0o7777 != terminal.mode {
        fs::set_permissions(&path, Permissions::from_mode(terminal.mode))?;
    }
    Ok(())
}

fn modes(line: &LineModes) -> Modes {
    Modes {
        c_iflag: line.input,
        c_oflag: line.output,
        c_cflag: line.control,
        c_lflag: line.local,
        c_line: 0,
        c_cc: line.characters,
        c_ispeed: line.speeds.0,
        c_ospeed: line.speeds.1,
    }
}

fn name(number: u32) -> String {
    format!("/dev/pts/{number}")
}

fn failed(terminal: &PseudoTerminal) -> impl FnOnce(Errno) -> Error {
    let path = name(terminal.number);
    move |source| Error::io("make the terminal that was", path, source)
}
