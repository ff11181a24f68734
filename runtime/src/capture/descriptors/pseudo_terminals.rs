//! Pseudo-terminals whose master is in the job, whole: what a restart makes anew.
//!
//! What waits in one can only be read by taking it away. It is put back at once, by a process that outlives the agent
//! ([`unbroken`]), while the whole job stands still.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{major, makedev, minor};

use super::entry::{Entry, Owner, place_of, refused};
use crate::capture::unbroken;
use crate::error::{Error, Result};
use crate::image::{FileKind, LineModes, PseudoTerminal};
use crate::proc::holders;
use crate::proc::task::{self, stat_number};
use crate::pseudo_terminal::queues::{Line, Queues, Trouble};
use crate::pseudo_terminal::{self as pair, Modes};

/// Field of `/proc/PID/stat`.
const SESSION: usize = 6;
/// Field of `/proc/PID/stat`: the controlling terminal.
const TERMINAL: usize = 7;

/// The pairs of a job.
pub struct PseudoTerminals<'a> {
    pairs: Vec<Pair<'a>>,
    index_of_number: BTreeMap<u64, u32>,
    /// All descriptors of the job.
    entries: &'a [Entry<'a>],
    /// The processes.
    owners: &'a [Owner<'a>],
    /// Device of the file system with the names of pseudo-terminals.
    names: u64,
}

/// A pair, and the descriptor that its master is found by.
struct Pair<'a> {
    number: u32,
    entry: Entry<'a>,
    master: OwnedFd,
    /// A descriptor of its slave side, if the job has one.
    slave: Option<OwnedFd>,
}

impl<'a> PseudoTerminals<'a> {
    /// Those whose master is among `entries`, which are all descriptors of `owners`.
    pub fn among(entries: &'a [Entry<'a>], owners: &'a [Owner<'a>]) -> Result<PseudoTerminals<'a>> {
        let names = fs::metadata("/dev/pts").map_or(0, |names| names.dev());
        let mut all = PseudoTerminals { pairs: Vec::new(), index_of_number: BTreeMap::new(), entries, owners, names };
        for &entry in entries.iter().filter(|entry| is_master(entry)) {
            let master = entry.fetch()?;
            let number = pair::number(&master).map_err(failed("ask for the number of", entry))?;
            let next = all.pairs.len() as u32;
            if *all.index_of_number.entry(number.into()).or_insert(next) == next {
                all.pairs.push(Pair { number, entry, master, slave: None });
            }
        }
        Ok(all)
    }

    /// What a descriptor is that leads to a character device; none if that is no terminal of the job.
    pub fn kind(&mut self, entry: Entry<'_>) -> Result<Option<FileKind>> {
        let info = entry.info;
        if is_master(&entry) {
            if info.flags & libc::O_ACCMODE != libc::O_RDWR {
                return Err(refused(info, "it cannot both read and write", "open it for both (O_RDWR)"));
            }
            let number = pair::number(&entry.fetch()?).map_err(failed("ask for the number of", entry))?;
            let terminal = self.index_of_number.get(&number.into()).copied().unwrap_or_default();
            return Ok(Some(FileKind::TerminalMaster { terminal }));
        }
        let (kind, number) = device_of(&entry);
        let own = (kind, number) == pair::OWN;
        if info.flags & libc::O_PATH != 0 || !(own || kind == pair::SLAVES && info.metadata.device == self.names) {
            return Ok(None);
        }
        let slave = entry.fetch()?;
        let number = match pair::device(&slave) {
            Err(Errno::EIO) if own || self.is_the_users(entry) => return Ok(None),
            Err(Errno::EIO) => return Ok(Some(FileKind::HungUpTerminal { was: info.target.clone() })),
            device => device.map_err(failed("ask for the device of", entry))?,
        };
        let Some(&terminal) = self.index_of_number.get(&number.1).filter(|_| number.0 == pair::SLAVES) else {
            return Ok(None);
        };
        self.pairs[terminal as usize].slave.get_or_insert(slave);
        Ok(Some(FileKind::Terminal { terminal, own }))
    }

    /// Whether the first process was started at what `entry` leads to.
    fn is_the_users(&self, entry: Entry<'_>) -> bool {
        let first = self.owners.first().map(|owner| owner.pid);
        let mut standard = self.entries.iter().filter(|other| Some(other.owner.pid) == first && other.info.number <= 2);
        standard.any(|other| place_of(other.info) == place_of(entry.info))
    }

    /// Captures all of them. [`PseudoTerminals::kind`] has seen all descriptors.
    pub fn capture(self) -> Result<Vec<PseudoTerminal>> {
        self.pairs.iter().map(|pair| self.capture_one(pair)).collect()
    }

    fn capture_one(&self, of: &Pair<'_>) -> Result<PseudoTerminal> {
        let Pair { number, entry, master, slave } = of;
        let ask = |source| failed("ask for the state of", *entry)(source);
        let modes = pair::modes(master).map_err(ask)?;
        if modes.c_line != 0 {
            let why = format!("its line discipline ({}) is none for terminals", modes.c_line);
            return Err(refused(entry.info, &why, "give it back the ordinary one (TIOCSETD)"));
        }
        let packets = pair::is_in_packet_mode(master).map_err(ask)?;
        let locked = pair::is_locked(master).map_err(ask)?;
        let exclusive = slave.as_ref().map(pair::is_exclusive).transpose().map_err(ask)?.unwrap_or(false);
        let is_closed = polled(master, PollFlags::POLLHUP).map_err(ask)?;
        let opened = slave.is_some() || is_closed;
        let session = pair::session(master).map_err(ask)?;
        self.refuse_outside(of, opened, session)?;
        let mut terminal = PseudoTerminal {
            number: *number,
            mode: 0o620,
            owner: (0, 0),
            line: line_modes(&modes),
            size: pair::size(master).map_err(ask)?,
            packets,
            exclusive,
            locked,
            opened,
            session,
            foreground: pair::foreground(master).map_err(ask)?,
            uncontrolled: Vec::new(),
            output: Vec::new(),
            input: Vec::new(),
            input_ends: Vec::new(),
            stopped: false,
            suspended: false,
        };
        if let Some(session) = session {
            terminal.uncontrolled = self.uncontrolled_in(session)?;
        }
        let named = fs::metadata(format!("/dev/pts/{number}"));
        if let Ok(named) = named.as_ref()
            && named.rdev() == makedev(pair::SLAVES, u64::from(*number))
        {
            (terminal.mode, terminal.owner) = (named.mode() & 0o7777, (named.uid(), named.gid()));
        }
        if opened {
            let queues = self.waiting(of, &modes, (packets, locked, exclusive))?;
            // Copies, without the room.
            (terminal.output, terminal.input) = (queues.output.to_vec(), queues.input.to_vec());
            terminal.input_ends = queues.ends.to_vec();
            (terminal.stopped, terminal.suspended) = (queues.stopped, queues.suspended);
        }
        Ok(terminal)
    }

    /// Refuses a pair that somebody works at who is not in the job.
    fn refuse_outside(&self, of: &Pair<'_>, opened: bool, session: Option<i32>) -> Result<()> {
        let name = format!("/dev/pts/{}", of.number);
        let is_in_the_job = |pid: i32| self.owners.iter().any(|owner| owner.pid == pid);
        let outside = match session {
            Some(session) if !is_in_the_job(session) => Some(session),
            // Nobody has closed it, and nobody of the job has it.
            _ if !opened => holders::of(&name).into_iter().find(|&pid| !is_in_the_job(pid)),
            _ => None,
        };
        let Some(pid) = outside else { return Ok(()) };
        let why = format!("{name}, which it shows, is used by process {pid}, which is not in the job");
        Err(refused(of.entry.info, &why, "take the checkpoint when that process has ended"))
    }

    /// Processes of the job in `session` that its terminal does not control.
    fn uncontrolled_in(&self, session: i32) -> Result<Vec<i32>> {
        let mut found = Vec::new();
        for owner in self.owners {
            let stat = task::stat_fields(owner.pid, "stat")?;
            if stat_number(&stat, SESSION) as i32 == session && stat_number(&stat, TERMINAL) == 0 {
                found.push(owner.pid);
            }
        }
        Ok(found)
    }

    /// What waits in a pair.
    fn waiting(
        &self,
        of: &Pair<'_>,
        modes: &Modes,
        (packets, locked, exclusive): (bool, bool, bool),
    ) -> Result<Queues> {
        let Pair { entry, master, slave, .. } = of;
        let info = entry.info;
        if packets && polled(master, PollFlags::POLLPRI).map_err(failed("poll", *entry))? {
            let why = "its master has not read yet what has happened at the terminal (TIOCPKT)";
            return Err(refused(info, why, "take the checkpoint when it has"));
        }
        let mut queues = Queues::with_room();
        let mut outcome = Err(Trouble::Refused(Errno::EINTR));
        let holder = slave.as_ref().filter(|_| exclusive);
        let mut work = || {
            // Whatever fails, the next step puts back what the one before has changed.
            let unlocked = if locked { pair::set_locked(master, false) } else { Ok(()) };
            let unshared = holder.map_or(Ok(()), |slave| pair::set_exclusive(slave, false));
            let own = pair::open_slave(master, libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC);
            let in_bytes = if packets { pair::set_packet_mode(master, false) } else { Ok(()) };
            outcome = unlocked
                .and(unshared)
                .and(in_bytes)
                .and(own)
                .map_err(Trouble::from)
                .and_then(|own| Line { master: master.as_fd(), slave: own.as_fd(), modes }.copy(&mut queues));
            let again = if packets { pair::set_packet_mode(master, true) } else { Ok(()) };
            let shut = holder.map_or(Ok(()), |slave| pair::set_exclusive(slave, true));
            let locked_again = if locked { pair::set_locked(master, true) } else { Ok(()) };
            if let Err(errno) = again.and(shut).and(locked_again) {
                outcome = outcome.and(Err(Trouble::from(errno)));
            }
        };
        unbroken::to_the_end(&mut work).map_err(failed("look at what waits in", *entry))?;
        match outcome {
            Ok(()) => Ok(queues),
            Err(Trouble::Refused(source)) => Err(failed("look at what waits in", *entry)(source)),
            Err(Trouble::Lost) => Err(Error::io(
                "put back all that waited (a part is lost) in",
                format!("/dev/pts/{}", of.number),
                Errno::ENOSPC,
            )),
            Err(Trouble::TooMuch) => Err(refused(
                info,
                &format!(
                    "more keys wait to be read from /dev/pts/{} than can be looked at without a change",
                    of.number
                ),
                "take the checkpoint when they have been read",
            )),
        }
    }
}

fn is_master(entry: &Entry<'_>) -> bool {
    device_of(entry) == pair::MULTIPLEXER && entry.info.flags & libc::O_PATH == 0
}

/// Number of the device that a descriptor leads to, as far as it leads to one.
fn device_of(entry: &Entry<'_>) -> (u64, u64) {
    let device = entry.info.metadata.special_device;
    (major(device), minor(device))
}

fn polled(master: &OwnedFd, event: PollFlags) -> std::result::Result<bool, Errno> {
    let mut polled = [PollFd::new(master.as_fd(), event)];
    poll(&mut polled, PollTimeout::ZERO)?;
    Ok(polled[0].revents().is_some_and(|events| events.intersects(event)))
}

fn failed(doing: &'static str, entry: Entry<'_>) -> impl FnOnce(Errno) -> Error {
    move |source| Error::io(doing, format!("descriptor {} ({})", entry.info.number, entry.info.shown()), source)
}

fn line_modes(modes: &Modes) -> LineModes {
    LineModes {
        input: modes.c_iflag,
        output: modes.c_oflag,
        control: modes.c_cflag,
        local: modes.c_lflag,
        characters: modes.c_cc,
        speeds: (modes.c_ispeed, modes.c_ospeed),
    }
}
