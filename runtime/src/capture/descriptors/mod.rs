//! Capturing the descriptor tables of a job: what each number leads to, which numbers share an open file description, in
//! whatever process, and what lies unread in pipes.
//!
//! A descriptor that cannot be rebuilt is refused by its number and kind, and the program runs on. Terminals
//! whose master is elsewhere, and pipes and sockets on 0, 1 and 2, lead to whoever started the program; after a restart that
//! is the restarter.

mod anonymous;
mod devices;
pub mod entry;
mod epoll;
mod fanotify;
mod files;
mod inotify;
mod io_urings;
mod message_queues;
mod of_processes;
mod pidfds;
mod pipe_content;
mod pipes;
mod pseudo_terminals;
mod queued_messages;
mod signal_driven;
mod sockets;
pub mod table;
mod watched;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::stat::SFlag;

use super::comparison::same_open_file;
use super::directories;
use super::locks;
use super::sent::Source;
use crate::error::{Error, Result};
use crate::image::{Descriptor, FileKind, MessageQueue, OpenFile, PipeContent, PseudoTerminal, SignalDriven};
use crate::net::{Address, FILES_MAX};
use crate::proc::fdinfo::{self, FdInfo};
use entry::{Entry, Owner, place_of};
pub use files::Unlinked;
pub use io_urings::{connect as connect_io_urings, has_one as has_io_uring};
use pipes::Pipes;
use pseudo_terminals::PseudoTerminals;
use sockets::Sockets;
use table::Table;
use watched::Places;

/// Status flags that come back by reopening; the rest of the flags word is the kernel's.
const KEPT_FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_PATH
    | libc::O_DIRECTORY;

/// The captured tables.
#[derive(Debug, Default)]
pub struct Tables {
    /// Open file descriptions.
    pub files: Vec<OpenFile>,
    /// Where each of them is open: process and number.
    pub places: Vec<(i32, i32)>,
    /// Pipes within the job.
    pub pipes: Vec<PipeContent>,
    /// Those of them that signal somebody when they become ready.
    pub signal_driven: Vec<SignalDriven>,
    /// Pseudo-terminals whose master is in the job.
    pub pseudo_terminals: Vec<PseudoTerminal>,
    /// Files that no path leads to.
    pub unlinked: Vec<Unlinked>,
    /// Open while `places` lead there: what no process has, because it is on its way from one to another.
    pub in_flight: Vec<OwnedFd>,
    /// POSIX message queues.
    pub message_queues: Vec<MessageQueue>,
    /// What belongs to each process.
    pub of_process: Vec<Table>,
}

/// Captures the descriptors of stopped processes.
pub fn capture(owners: &[Owner<'_>]) -> Result<Tables> {
    let infos: Vec<Vec<FdInfo>> = owners.iter().map(|owner| fdinfo::descriptors(owner.pid)).collect::<Result<_>>()?;
    let (sockets, in_flight) = Sockets::look(owners, &infos)?;
    let own_pid = std::process::id() as i32;
    let us = Owner { pid: own_pid, source: Source::Own };
    let of_each = || owners.iter().zip(&infos).chain(std::iter::once((&us, &in_flight)));
    let entries: Vec<Entry<'_>> =
        of_each().flat_map(|(&owner, infos)| infos.iter().map(move |info| Entry { owner, info })).collect();

    let mut tables = Tables::default();
    let pids: Vec<i32> = owners.iter().map(|owner| owner.pid).collect();
    let places = Places::of(&pids, &entries);
    let terminals = PseudoTerminals::among(&entries, owners)?;
    let pipes = Pipes::among(&entries);
    let (unlinked, queues, rings) = (Vec::new(), Vec::new(), io_urings::Mapped::default());
    let (elsewhere, entries) = (Vec::new(), entries.as_slice());
    let mut found = Found { pipes, terminals, unlinked, sockets, queues, pids, places, rings, elsewhere, entries };
    let mut representatives = Representatives::default();
    for (&owner, infos) in of_each() {
        let mut table = Table::default();
        for info in infos {
            let entry = Entry { owner, info };
            let file = match representatives.find(entry)? {
                Some(file) => file,
                None => {
                    let kind = kind(entry, tables.files.len(), infos, &mut found)?;
                    tables.files.push(OpenFile { kind, flags: info.flags & KEPT_FLAGS });
                    tables.places.push((owner.pid, info.number));
                    tables.signal_driven.extend(signal_driven::capture(entry, tables.files.len() as u32 - 1)?);
                    representatives.add(entry, tables.files.len() as u32 - 1)
                }
            };
            let close_on_exec = info.flags & libc::O_CLOEXEC != 0;
            table.descriptors.push(Descriptor { number: info.number, file, close_on_exec });
        }
        table.locks = locks::capture(infos, &table.descriptors, &tables.files)?;
        tables.of_process.push(table);
    }
    let table_in_flight = tables.of_process.pop().unwrap_or_default();
    refuse_in_flight(&table_in_flight, &tables.files)?;
    let file_of = table_in_flight.descriptors.iter().map(|descriptor| (descriptor.number, descriptor.file)).collect();
    let in_flight = found.sockets.finish(&mut tables.files, &file_of)?;
    epoll::connect(found.elsewhere, &found.pids, &tables.of_process, &mut tables.files)?;
    locks::keep_one_of_each_description(&mut tables.of_process);
    refuse_too_many_to_hand_over(&tables.files)?;
    let Found { pipes, terminals, unlinked, queues, .. } = found;
    // The last that can fail: what waits in terminals is read from them, and put back.
    let pseudo_terminals = terminals.capture()?;
    Ok(Tables { pipes: pipes.contents, pseudo_terminals, unlinked, message_queues: queues, in_flight, ..tables })
}

/// Refuses what cannot be sent to a process that is not there yet.
fn refuse_in_flight(table: &Table, files: &[OpenFile]) -> Result<()> {
    let what = table.descriptors.iter().find_map(|descriptor| match files[descriptor.file as usize].kind {
        FileKind::Epoll { .. } => Some("an epoll instance"),
        FileKind::IoUring(_) => Some("an io_uring instance"),
        FileKind::PidFd { .. } => Some("a descriptor of a process"),
        FileKind::OfProcess { .. } => Some("a file that /proc has of a process"),
        FileKind::Inotify { .. } => Some("an inotify instance"),
        FileKind::Fanotify(_) => Some("a fanotify group"),
        FileKind::MessageQueue { .. } => Some("a message queue"),
        FileKind::Terminal { own: true, .. } => Some("a controlling terminal"),
        _ => None,
    });
    let Some(what) = what.or(table.locks.first().map(|_| "a file with a lock")) else { return Ok(()) };
    let what = format!("{what} that is on its way through a Unix socket");
    Err(Error::unsettled(what, "it belongs to no process", "take the checkpoint when it has arrived"))
}

/// What several descriptions can lead to, as far as it has been met.
struct Found<'a> {
    pipes: Pipes<'a>,
    terminals: PseudoTerminals<'a>,
    unlinked: Vec<Unlinked>,
    sockets: Sockets,
    queues: Vec<MessageQueue>,
    /// The processes.
    pids: Vec<i32>,
    /// Where they work.
    places: Places,
    rings: io_urings::Mapped,
    /// What epoll instances watch under numbers that lead elsewhere now.
    elsewhere: Vec<epoll::Elsewhere>,
    /// All descriptors.
    entries: &'a [Entry<'a>],
}

/// One descriptor of each open file description met so far, by device and inode.
#[derive(Default)]
struct Representatives<'a>(BTreeMap<(u64, u64), Vec<(Entry<'a>, u32)>>);

impl<'a> Representatives<'a> {
    /// The open file description that `entry` shares with an earlier descriptor, if any.
    fn find(&self, entry: Entry<'_>) -> Result<Option<u32>> {
        for (earlier, file) in self.0.get(&place_of(entry.info)).into_iter().flatten() {
            let alike = earlier.info.target == entry.info.target && earlier.info.position == entry.info.position;
            if alike && same_open_file(earlier.place(), entry.place())? {
                return Ok(Some(*file));
            }
        }
        Ok(None)
    }

    fn add(&mut self, entry: Entry<'a>, file: u32) -> u32 {
        self.0.entry(place_of(entry.info)).or_default().push((entry, file));
        file
    }
}

/// Refuses Unix sockets whose path begins at the root directory, which process `pid` of the job has another one of: whose it began at,
/// the kernel does not tell.
pub fn refuse_paths_of_sockets(pid: i32, files: &[OpenFile]) -> Result<()> {
    let path = files.iter().find_map(|file| match &file.kind {
        FileKind::Socket(socket) => Address(&socket.name).path().filter(|path| path.starts_with(b"/")),
        _ => None,
    });
    let Some(path) = path else { return Ok(()) };
    let path = String::from_utf8_lossy(path);
    Err(Error::unsupported(
        format!("a Unix socket at {path}, where process {pid} has a changed root directory"),
        "the kernel does not tell from which root its path leads",
        "close it before the checkpoint, or bind it by a relative path",
    ))
}

/// A restart hands these over in one packet.
fn refuse_too_many_to_hand_over(files: &[OpenFile]) -> Result<()> {
    let count = files.iter().filter(|file| file.is_handed_over()).count();
    if count <= FILES_MAX {
        return Ok(());
    }
    Err(Error::unsupported(
        format!(
            "a job with {count} descriptors of processes and of their files in /proc, inotify instances, fanotify groups and message queues"
        ),
        format!("no more than {FILES_MAX} are restored"),
        "close those that are not needed",
    ))
}

/// What `entry` leads to, which is to be file `index` of the job; `all` are the descriptors of its process.
fn kind(entry: Entry<'_>, index: usize, all: &[FdInfo], found: &mut Found<'_>) -> Result<FileKind> {
    let info = entry.info;
    let format = SFlag::from_bits_truncate(info.metadata.mode) & SFlag::S_IFMT;
    if let Some(of_process) = of_processes::kind(info, format, &found.pids)? {
        return Ok(of_process);
    }
    if pidfds::is_pidfd(info) {
        pidfds::kind(entry, &found.pids)
    } else if info.target == crate::io_uring::NAME {
        io_urings::kind(entry, &found.pids, &mut found.rings)
    } else if info.target == b"anon_inode:[eventpoll]" {
        epoll::kind(entry, index, all, found.entries, &mut found.elsewhere)
    } else if info.target == b"anon_inode:inotify" {
        inotify::kind(entry, &mut found.places)
    } else if info.target == fanotify::NAME {
        fanotify::kind(entry, &mut found.places)
    } else if files::is_named(info, format) {
        files::named(info, format)
    } else if format == SFlag::S_IFREG {
        match message_queues::kind(entry, &mut found.queues)? {
            Some(queue) => Ok(queue),
            None => files::regular(entry, &mut found.unlinked),
        }
    } else if format == SFlag::S_IFDIR {
        let link = format!("/proc/{}/fd/{}", entry.owner.pid, info.number);
        Ok(match directories::place(Path::new(&link), info.target.clone())? {
            (path, removed @ Some(_)) => FileKind::Directory { path, offset: info.position, removed },
            (_, None) => FileKind::Directory { path: files::living_path(info)?, offset: info.position, removed: None },
        })
    } else if format == SFlag::S_IFCHR {
        match found.terminals.kind(entry)? {
            Some(kind) => Ok(kind),
            None => devices::character_device(info, all),
        }
    } else if format == SFlag::S_IFIFO {
        found.pipes.kind(entry)
    } else if format == SFlag::S_IFSOCK {
        found.sockets.kind(entry)
    } else {
        anonymous::kind(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What /proc would say of a descriptor that leads to `target`.
    pub fn descriptor(number: i32, target: &str) -> FdInfo {
        let metadata =
            fdinfo::FileStat { device: 0, inode: 1, mode: 0, links: 1, special_device: 0, size: 0, modified_ns: 0 };
        FdInfo { number, target: target.into(), position: 0, flags: 0, fields: Vec::new(), metadata }
    }
}
