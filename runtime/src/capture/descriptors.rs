//! Capturing the descriptor tables of a job: what each number leads to, which numbers share an open file description, in
//! whatever process, and what lies unread in pipes.
//!
//! A descriptor that cannot be rebuilt is refused by its number and kind, and the program runs on. Terminals,
//! and pipes and sockets on 0, 1 and 2, lead to whoever started the program; after a restart that is the restarter.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ckpt_store::PageListRef;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, tee};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, major};
use nix::sys::statfs::{FsType, HUGETLBFS_MAGIC, fstatfs};
use nix::unistd::{pipe2, read};

use super::syscalls::{pidfd_getfd, same_open_file};
use super::{locks, timerfds};
use crate::error::{Error, Result};
use crate::image::{Descriptor, EpollTarget, FileContent, FileKind, FileLock, OpenFile, PipeContent, UnlinkedFile};
use crate::proc::fdinfo::{self, FdInfo};

/// Major number of /dev/null, /dev/zero, /dev/full, /dev/random, /dev/urandom.
const MEMORY_DEVICES: u64 = 1;
const DELETED: &[u8] = b" (deleted)";
const MEMFD: &[u8] = b"/memfd:";
/// Of the file system of message queues.
const MQUEUE_MAGIC: FsType = FsType(0x1980_0202);
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

/// A stopped process whose descriptors are captured.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Its pid.
    pub pid: i32,
    /// A handle by which its descriptors are fetched.
    pub pidfd: BorrowedFd<'a>,
}

/// The captured tables.
#[derive(Debug, Default)]
pub struct Tables {
    /// Open file descriptions.
    pub files: Vec<OpenFile>,
    /// Where each of them is open: process and number.
    pub places: Vec<(i32, i32)>,
    /// Pipes within the job.
    pub pipes: Vec<PipeContent>,
    /// Files that no path leads to.
    pub unlinked: Vec<Unlinked>,
    /// What belongs to each process.
    pub of_process: Vec<Table>,
}

/// The table of one process.
#[derive(Debug, Default)]
pub struct Table {
    /// Numbers.
    pub descriptors: Vec<Descriptor>,
    /// Locks on files.
    pub locks: Vec<FileLock>,
}

/// A file that no path leads to, and where it can be read.
#[derive(Debug)]
pub struct Unlinked {
    /// The record, without its content.
    pub file: UnlinkedFile,
    /// Its name as /proc shows it.
    pub target: Vec<u8>,
    /// Device and inode.
    pub place: (u64, u64),
    /// A process, and its descriptor that leads to it.
    pub opened: (i32, i32),
}

/// Captures the descriptors of stopped processes.
pub fn capture(owners: &[Owner<'_>]) -> Result<Tables> {
    let infos: Vec<Vec<FdInfo>> = owners.iter().map(|owner| fdinfo::descriptors(owner.pid)).collect::<Result<_>>()?;
    let of_each = owners.iter().zip(&infos);
    let entries: Vec<Entry<'_>> =
        of_each.flat_map(|(&owner, infos)| infos.iter().map(move |info| Entry { owner, info })).collect();
    let mut tables = Tables::default();
    let mut pipes = Pipes { entries: &entries, index_of_inode: BTreeMap::new() };
    let mut representatives = Representatives::default();
    for (owner, infos) in owners.iter().zip(&infos) {
        let mut table = Table::default();
        for info in infos {
            let entry = Entry { owner: *owner, info };
            let file = match representatives.find(entry)? {
                Some(file) => file,
                None => {
                    let kind = match is_unlinked(info) {
                        true => unlinked(entry, &mut tables.unlinked)?,
                        false => kind(entry, infos, &mut pipes, &mut tables.pipes)?,
                    };
                    tables.files.push(OpenFile { kind, flags: info.flags & KEPT_FLAGS });
                    tables.places.push((owner.pid, info.number));
                    representatives.add(entry, tables.files.len() as u32 - 1)
                }
            };
            let close_on_exec = info.flags & libc::O_CLOEXEC != 0;
            table.descriptors.push(Descriptor { number: info.number, file, close_on_exec });
        }
        table.locks = locks::capture(infos, &table.descriptors, &tables.files)?;
        tables.of_process.push(table);
    }
    locks::keep_one_of_each_description(&mut tables.of_process);
    Ok(tables)
}

/// A descriptor of a process.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    owner: Owner<'a>,
    info: &'a FdInfo,
}

impl Entry<'_> {
    fn fetch(&self) -> Result<OwnedFd> {
        pidfd_getfd(self.owner.pidfd, self.info.number)
    }
}

/// One descriptor of each open file description met so far, by device and inode.
#[derive(Default)]
struct Representatives<'a>(BTreeMap<(u64, u64), Vec<(Entry<'a>, u32)>>);

impl<'a> Representatives<'a> {
    /// The open file description that `entry` shares with an earlier descriptor, if any.
    fn find(&self, entry: Entry<'_>) -> Result<Option<u32>> {
        for (earlier, file) in self.0.get(&place_of(entry.info)).into_iter().flatten() {
            let alike = earlier.info.target == entry.info.target && earlier.info.position == entry.info.position;
            let numbers = ((earlier.owner.pid, earlier.info.number), (entry.owner.pid, entry.info.number));
            if alike && same_open_file(numbers.0, numbers.1)? {
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

fn place_of(info: &FdInfo) -> (u64, u64) {
    (info.metadata.device, info.metadata.inode)
}

fn refused(info: &FdInfo, why: &str, advice: &str) -> Error {
    Error::unsupported(format!("descriptor {} ({})", info.number, info.shown()), why, advice)
}

/// What `entry` leads to; `all` are the descriptors of its process.
fn kind(entry: Entry<'_>, all: &[FdInfo], pipes: &mut Pipes<'_>, contents: &mut Vec<PipeContent>) -> Result<FileKind> {
    let info = entry.info;
    refuse_state(info)?;
    let format = SFlag::from_bits_truncate(info.metadata.mode) & SFlag::S_IFMT;
    if format == SFlag::S_IFREG {
        regular(info)
    } else if format == SFlag::S_IFDIR {
        Ok(FileKind::Directory { path: living_path(info)?, offset: info.position })
    } else if format == SFlag::S_IFCHR {
        character_device(info, all)
    } else if format == SFlag::S_IFIFO {
        pipes.kind(entry, contents)
    } else if format == SFlag::S_IFSOCK && info.number <= 2 {
        Ok(FileKind::Standard { stream: info.number, was: info.target.clone() })
    } else if format == SFlag::S_IFSOCK {
        Err(refused(info, "sockets are not captured yet", "close it before the checkpoint"))
    } else {
        anonymous(entry, all)
    }
}

/// State of an open file description that is not captured.
fn refuse_state(info: &FdInfo) -> Result<()> {
    locks::refuse_lease(info)?;
    if info.flags & libc::O_ASYNC != 0 {
        return Err(refused(info, "signal-driven I/O (O_ASYNC) is not captured yet", "turn O_ASYNC off"));
    }
    Ok(())
}

/// Whether it is a regular file that has been deleted, or never had a name.
fn is_unlinked(info: &FdInfo) -> bool {
    let is_regular = SFlag::from_bits_truncate(info.metadata.mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    is_regular && (info.metadata.links == 0 || info.target.starts_with(MEMFD))
}

/// The record of a file that no path leads to, which others may have open as well.
fn unlinked(entry: Entry<'_>, all: &mut Vec<Unlinked>) -> Result<FileKind> {
    let info = entry.info;
    refuse_state(info)?;
    let place = place_of(info);
    let known = all.iter().position(|other| other.place == place);
    let index = match known {
        Some(index) => index,
        None => {
            let name = info.target.strip_suffix(DELETED).unwrap_or(&info.target);
            let memory_name = name.strip_prefix(MEMFD);
            let handle = entry.fetch()?;
            refuse_file_system(info, &handle)?;
            let failed = |source| Error::io("examine", info.shown(), source);
            let memory_seals =
                memory_name.map(|_| fcntl(&handle, FcntlArg::F_GET_SEALS)).transpose().map_err(failed)?;
            let content = FileContent { bytes: info.metadata.size, pages: PageListRef::EMPTY };
            let path = memory_name.unwrap_or(name).to_vec();
            let file = UnlinkedFile { path, memory_seals, mode: info.metadata.mode & 0o7777, content, object: None };
            let opened = (entry.owner.pid, info.number);
            all.push(Unlinked { file, target: info.target.clone(), place, opened });
            all.len() - 1
        }
    };
    Ok(FileKind::Unlinked { file: index as u32, offset: info.position })
}

/// Refuses what looks like a file and is none that could be made anew.
fn refuse_file_system(info: &FdInfo, handle: &OwnedFd) -> Result<()> {
    let found = fstatfs(handle).map_err(|source| Error::io("examine", info.shown(), source))?.filesystem_type();
    match found {
        HUGETLBFS_MAGIC => {
            Err(refused(info, "huge pages of hugetlbfs are not captured yet", "use transparent huge pages"))
        }
        MQUEUE_MAGIC => Err(refused(info, "message queues are not captured yet", "close it before the checkpoint")),
        _ => Ok(()),
    }
}

/// The path of a file that can be opened again by it.
fn living_path(info: &FdInfo) -> Result<Vec<u8>> {
    if info.metadata.links == 0 || info.target.ends_with(DELETED) {
        let why = "it has been deleted, and would not be found again";
        return Err(refused(info, why, "keep it, or close it before the checkpoint"));
    }
    let path = Path::new(OsStr::from_bytes(&info.target));
    let leads_there = std::fs::metadata(path)
        .is_ok_and(|named| named.ino() == info.metadata.inode && named.dev() == info.metadata.device);
    if !leads_there {
        let why = "its path leads nowhere or to another file (a message queue, or a file replaced meanwhile)";
        return Err(refused(info, why, "close it before the checkpoint"));
    }
    Ok(info.target.clone())
}

fn regular(info: &FdInfo) -> Result<FileKind> {
    Ok(FileKind::Regular {
        path: living_path(info)?,
        device: (
            nix::sys::stat::major(info.metadata.device) as u32,
            nix::sys::stat::minor(info.metadata.device) as u32,
        ),
        inode: info.metadata.inode,
        size: info.metadata.size,
        offset: info.position,
        modified_ns: info.metadata.modified_ns,
    })
}

fn character_device(info: &FdInfo, all: &[FdInfo]) -> Result<FileKind> {
    if major(info.metadata.special_device) == MEMORY_DEVICES {
        return Ok(FileKind::Device { path: info.target.clone() });
    }
    if is_the_users_terminal(info, all) {
        return Ok(FileKind::Standard { stream: standard_stream(info, all), was: info.target.clone() });
    }
    Err(refused(info, "the device keeps state of its own", "close it before the checkpoint"))
}

/// A terminal of the person who sits before the program, who may sit before another one after a restart. A serial line is one
/// only if the program's standard streams lead there; else it leads to a device.
fn is_the_users_terminal(info: &FdInfo, all: &[FdInfo]) -> bool {
    let path = info.target.as_slice();
    match path.strip_prefix(b"/dev/tty") {
        Some(name) if name.is_empty() || name[0].is_ascii_digit() => true,
        Some(_) => all.iter().any(|other| other.number <= 2 && other.target == path),
        None => path.starts_with(b"/dev/pts/") || path == b"/dev/console",
    }
}

/// Which standard stream stands for a terminal: its own number, one that is the same terminal, or by direction.
fn standard_stream(info: &FdInfo, all: &[FdInfo]) -> i32 {
    if info.number <= 2 {
        return info.number;
    }
    let twin = all.iter().find(|other| other.number <= 2 && other.target == info.target);
    match twin {
        Some(other) => other.number,
        None if info.flags & libc::O_ACCMODE == libc::O_RDONLY => 0,
        None => 1,
    }
}

fn anonymous(entry: Entry<'_>, all: &[FdInfo]) -> Result<FileKind> {
    let info = entry.info;
    match info.target.as_slice() {
        b"anon_inode:[eventfd]" => Ok(FileKind::EventFd {
            count: info
                .field("eventfd-count")
                .and_then(|count| u64::from_str_radix(count, 16).ok())
                .ok_or_else(|| refused(info, "its counter cannot be read", "close it before the checkpoint"))?,
            semaphore: info.field("eventfd-semaphore") == Some("1"),
        }),
        b"anon_inode:[timerfd]" => timerfds::capture(info, entry.owner.pidfd),
        b"anon_inode:[signalfd]" => {
            let mask = info.field("sigmask").and_then(|mask| u64::from_str_radix(mask, 16).ok());
            let unreadable = || refused(info, "its signals cannot be read", "close it before the checkpoint");
            Ok(FileKind::SignalFd { mask: mask.ok_or_else(unreadable)? })
        }
        b"anon_inode:[eventpoll]" => epoll(info, all),
        _ => Err(refused(info, "this kind of object is not captured yet", "close it before the checkpoint")),
    }
}

fn epoll(info: &FdInfo, all: &[FdInfo]) -> Result<FileKind> {
    let mut targets = Vec::new();
    for (_, value) in info.fields.iter().filter(|(name, _)| name == "tfd") {
        let unreadable = || refused(info, "what it watches cannot be read", "close it before the checkpoint");
        let (target, inode) = epoll_target(value).ok_or_else(unreadable)?;
        let watched = all.iter().find(|other| other.number == target.number);
        if watched.is_none_or(|watched| watched.metadata.inode != inode) {
            let why = format!("it watches descriptor {}, which has been closed or replaced", target.number);
            return Err(refused(info, &why, "remove it from the epoll set before closing it"));
        }
        targets.push(target);
    }
    Ok(FileKind::Epoll { targets })
}

/// Parses the rest of `tfd: 17 events: 19 data: 11  pos:0 ino:40f sdev:10`.
fn epoll_target(value: &str) -> Option<(EpollTarget, u64)> {
    let mut words = value.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut hex_after = |name: &str| -> Option<u64> {
        let word = words.next()?;
        let digits = match word.strip_prefix(name)? {
            "" => words.next()?,
            digits => digits,
        };
        u64::from_str_radix(digits, 16).ok()
    };
    let events = hex_after("events:")?;
    let data = hex_after("data:")?;
    hex_after("pos:");
    let inode = hex_after("ino:")?;
    Some((EpollTarget { number, events: events as u32, data }, inode))
}

/// The pipes met so far.
struct Pipes<'a> {
    /// All descriptors of the job.
    entries: &'a [Entry<'a>],
    index_of_inode: BTreeMap<(u64, u64), u32>,
}

impl Pipes<'_> {
    fn kind(&mut self, entry: Entry<'_>, contents: &mut Vec<PipeContent>) -> Result<FileKind> {
        let info = entry.info;
        let pipe = place_of(info);
        if let Some(&pipe) = self.index_of_inode.get(&pipe) {
            return Ok(FileKind::Pipe { pipe });
        }
        let ends = || self.entries.iter().filter(|other| place_of(other.info) == pipe);
        let mode = |other: &Entry<'_>| other.info.flags & libc::O_ACCMODE;
        let has_reader = ends().any(|other| mode(other) != libc::O_WRONLY);
        let has_writer = ends().any(|other| mode(other) != libc::O_RDONLY);
        let within = (has_reader && has_writer) || other_end_is_closed(entry)?;
        if !within {
            return match ends().find(|other| other.info.number <= 2) {
                Some(standard) => Ok(FileKind::Standard { stream: standard.info.number, was: info.target.clone() }),
                None => Err(refused(
                    info,
                    "the pipe leads outside the job",
                    "close it before the checkpoint, or start the program without it",
                )),
            };
        }
        if !info.target.starts_with(b"pipe:") {
            return Err(refused(info, "named pipes are not captured yet", "close it before the checkpoint"));
        }
        // Only the write end shows the flag.
        if let Some(end) = ends().find(|end| end.info.flags & libc::O_DIRECT != 0) {
            return Err(refused(end.info, "pipes in packet mode (O_DIRECT) are not captured yet", "turn O_DIRECT off"));
        }
        let end = entry.fetch()?;
        let capacity = fcntl(&end, FcntlArg::F_GETPIPE_SZ)
            .map_err(|source| Error::io("read the capacity of", info.shown(), source))?;
        let content = match ends().find(|other| mode(other) != libc::O_WRONLY) {
            Some(reader) => unread(reader.fetch()?, capacity as usize, info)?,
            None => Vec::new(),
        };
        let index = contents.len() as u32;
        contents.push(PipeContent { capacity: capacity as u32, content, has_reader, has_writer });
        self.index_of_inode.insert(pipe, index);
        Ok(FileKind::Pipe { pipe: index })
    }
}

/// Whether nobody at all holds the other end of a pipe.
fn other_end_is_closed(end: Entry<'_>) -> Result<bool> {
    let fetched = end.fetch()?;
    let mut polled = [PollFd::new(fetched.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).map_err(|source| Error::io("poll", end.info.shown(), source))?;
    Ok(polled[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)))
}

/// The bytes in a pipe, read without consuming them.
fn unread(read_end: OwnedFd, capacity: usize, info: &FdInfo) -> Result<Vec<u8>> {
    let failed = |source: nix::errno::Errno| Error::io("read without consuming", info.shown(), source);
    let (copy_out, copy_in) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(failed)?;
    // As many buffers as the original may hold: a pipe of single-byte writes fills buffers, not bytes.
    fcntl(&copy_in, FcntlArg::F_SETPIPE_SZ(capacity.max(65536) as i32)).map_err(failed)?;
    let teed = match tee(&read_end, &copy_in, capacity, SpliceFFlags::SPLICE_F_NONBLOCK) {
        Ok(bytes) => bytes,
        Err(nix::errno::Errno::EAGAIN) => 0,
        Err(source) => return Err(failed(source)),
    };
    let mut content = vec![0; teed];
    let mut done = 0;
    while done < teed {
        match read(copy_out.as_fd(), &mut content[done..]).map_err(failed)? {
            0 => return Err(Error::io("read", info.shown(), std::io::ErrorKind::UnexpectedEof)),
            bytes => done += bytes,
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_epoll_is_read_with_or_without_blanks_behind_the_colons() {
        let (target, inode) =
            epoll_target("17 events:       19 data:               11  pos:0 ino:40f sdev:10").unwrap();
        assert_eq!(target, EpollTarget { number: 17, events: 0x19, data: 0x11 });
        assert_eq!(inode, 0x40f);
        let (target, inode) = epoll_target("5 events: 80000019 data: ffffffffffffffff  pos:0 ino:1 sdev:f").unwrap();
        assert_eq!((target.events, target.data, inode), (0x8000_0019, u64::MAX, 1));
    }

    fn descriptor(number: i32, target: &str) -> FdInfo {
        let metadata =
            fdinfo::FileStat { device: 0, inode: 1, mode: 0, links: 1, special_device: 0, size: 0, modified_ns: 0 };
        FdInfo { number, target: target.into(), position: 0, flags: 0, fields: Vec::new(), metadata }
    }

    #[test]
    fn a_serial_line_is_a_terminal_only_to_a_program_that_is_used_there() {
        let is_terminal = |all: &[FdInfo]| is_the_users_terminal(&all[0], all);
        for path in ["/dev/tty", "/dev/tty1", "/dev/pts/0", "/dev/console"] {
            assert!(is_terminal(&[descriptor(3, path)]), "{path}");
        }
        for path in ["/dev/ttyS0", "/dev/ttyUSB1", "/dev/fuse"] {
            assert!(!is_terminal(&[descriptor(3, path), descriptor(0, "/dev/pts/0")]), "{path}");
        }
        let lines = [descriptor(3, "/dev/ttyS0"), descriptor(1, "/dev/ttyS0")];
        assert!(is_terminal(&lines) && is_terminal(&lines[1..]));
    }

    #[test]
    fn what_lies_in_a_pipe_is_read_and_stays_there() {
        let info = descriptor(3, "pipe:[1]");
        let (out, into) = pipe2(OFlag::O_NONBLOCK).unwrap();
        for word in ["first ", "second"] {
            nix::unistd::write(&into, word.as_bytes()).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(unread(out.try_clone().unwrap(), 65536, &info).unwrap(), b"first second");
        }
    }
}
