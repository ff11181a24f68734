//! System V shared memory, semaphores and message queues that a job uses.
//!
//! No descriptor leads to them, and the kernel does not write down who uses them. Memory belongs to a job that has attached or made it. Of
//! a set of semaphores and a queue the kernel knows which processes have changed it last, and a thread that waits on one has its id in
//! its registers. libckpt.so remembers which a process has had made: such a one is the job's unless somebody else uses it.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::ptr;

use ckpt_store::{Attempt, PAGE_BYTES, PageList};
use ckpt_wire::{Control, SYSV_IDS, SysvIds};
use nix::errno::Errno;
use zerocopy::{FromZeros, IntoBytes};

use super::pages;
use super::regions::SharedMemory;
use crate::error::{Error, Result};
use crate::image::{
    FileContent, Objects, SysvIdentity, SysvMemory, SysvMessage, SysvQueue, SysvSemaphores, ThreadImage,
};
use crate::page_set::PageSet;
use crate::proc::sysvipc::{Kind, MAPPED_NAME, Row, rows};
use crate::proc::{maps, task};
use crate::ptrace::{Registers, read_memory};

const SHM_DEST: u32 = 0o1000;
const SHM_LOCKED: u32 = 0o2000;
const MSG_COPY: i32 = 0o40000;
const GETPID: i32 = 11;
const GETALL: i32 = 13;
/// The longest message that a kernel can be told to take, 16 MiB: no queue has a longer one.
const MESSAGE_MAX: usize = 16 << 20;

const OTHERWISE: &str = "take the checkpoint when that is over, or share a file instead";

/// The objects of a job, with what no mapping of it shows.
#[derive(Debug, Default)]
pub struct Sysv {
    memory: Vec<SysvMemory>,
    contents: Vec<Option<Vec<u8>>>,
    semaphores: Vec<SysvSemaphores>,
    queues: Vec<SysvQueue>,
}

/// Ids of semaphores and of queues that processes have had made.
#[derive(Debug, Default)]
pub struct Made {
    semaphores: HashSet<i32>,
    queues: HashSet<i32>,
}

/// What libckpt.so in the stopped processes remembers of them.
pub fn made<'a>(members: impl Iterator<Item = (i32, &'a Control)>) -> Made {
    let mut made = Made::default();
    for (pid, control) in members.filter(|(_, control)| control.sysv_ids != 0) {
        let mut ids = SysvIds::new_zeroed();
        if let Err(error) = read_memory(pid, control.sysv_ids, ids.as_mut_bytes()) {
            log::debug!("what process {pid} has made of System V objects is not known: {error}");
        }
        let kept = |ids: [i32; SYSV_IDS]| ids.into_iter().filter(|id| *id > 0).map(|id| id - 1);
        made.semaphores.extend(kept(ids.semaphores));
        made.queues.extend(kept(ids.queues));
    }
    made
}

/// Whether none of those who have used an object last lives outside of the job.
fn is_left_to(pids: &[i32], users: &[i32]) -> bool {
    users.iter().all(|user| *user == 0 || pids.contains(user) || !task::lives(*user))
}

/// Captures those of the stopped processes `pids`, whose threads are `threads`, and who have `made` some.
pub fn capture<'a>(pids: &[i32], made: &Made, threads: impl Iterator<Item = &'a ThreadImage> + Clone) -> Result<Sysv> {
    let mut sysv = Sysv::default();
    sysv.capture_memory(pids)?;
    let waited = |calls: &[i64], id: i32| threads.clone().any(|thread| waits(thread, calls, id));
    let owners: Vec<u32> =
        pids.iter().filter_map(|pid| Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())).collect();
    for row in rows(Kind::Semaphores)? {
        let waits = waited(&[libc::SYS_semop, libc::SYS_semtimedop], row.id);
        let may_be_used = waits || owners.iter().any(|&uid| i64::from(uid) == row.number("cuid") || uid == 0);
        let users = if may_be_used { users(&row) } else { Vec::new() };
        let is_made = || may_be_used && made.semaphores.contains(&row.id) && is_left_to(pids, &users);
        if waits || users.iter().any(|user| pids.contains(user)) || is_made() {
            let values = values(&row)?;
            sysv.semaphores.push(SysvSemaphores { identity: identity(&row), values, users });
        }
    }
    for row in rows(Kind::Queue)? {
        let [sender, receiver] = ["lspid", "lrpid"].map(|column| row.number(column) as i32);
        let waits = waited(&[libc::SYS_msgrcv, libc::SYS_msgsnd], row.id);
        let is_made = || made.queues.contains(&row.id) && is_left_to(pids, &[sender, receiver]);
        if waits || pids.contains(&sender) || pids.contains(&receiver) || is_made() {
            let (capacity, messages) = (capacity(&row)?, messages(&row)?);
            sysv.queues.push(SysvQueue { identity: identity(&row), capacity, sender, receiver, messages });
        }
    }
    Ok(sysv)
}

/// Whether a thread goes on with one of `calls` on the object with this id.
fn waits(thread: &ThreadImage, calls: &[i64], id: i32) -> bool {
    let Some(&words) = thread.registers.first_chunk::<{ Registers::WORDS }>() else { return false };
    let registers = Registers::from_words(words).0;
    calls.contains(&(registers.rax as i64)) && registers.rdi as i32 == id
}

impl Sysv {
    fn capture_memory(&mut self, pids: &[i32]) -> Result<()> {
        let rows = rows(Kind::Memory)?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut mapped: HashMap<i32, Vec<maps::Mapping>> = HashMap::new();
        for &pid in pids {
            let segments = maps::outline(pid)?.into_iter().filter(|mapping| mapping.name.starts_with(MAPPED_NAME));
            segments.for_each(|mapping| mapped.entry(mapping.inode as i32).or_default().push(mapping));
        }
        for row in rows {
            let own = mapped.get(&row.id).map_or(&[][..], Vec::as_slice);
            let creator = row.number("cpid") as i32;
            if own.is_empty() && !pids.contains(&creator) {
                continue;
            }
            if row.number("nattch") != own.len() as i64 {
                // Or the clone that holds the memory of an earlier checkpoint, which is just ending.
                let why = "a process outside the job has attached it, too";
                return Err(Error::unsettled(Kind::Memory.shown(row.id), why, OTHERWISE));
            }
            let mut identity = identity(&row);
            let destroyed = row.mode() & SHM_DEST != 0;
            if let Some(mapping) = own.first().filter(|_| destroyed) {
                identity.key = key_in(&mapping.name);
            }
            let bytes = row.number("size") as u64;
            let locked = row.mode() & SHM_LOCKED != 0;
            let memory =
                SysvMemory { identity, bytes, creator, destroyed, locked, attachments: Vec::new(), content: None };
            self.contents.push(if covers(own, memory.mapped_bytes()) { None } else { Some(content(&row)?) });
            self.memory.push(memory);
        }
        Ok(())
    }

    /// Says of the mappings' objects which segments they are, and of the segments where they are attached.
    ///
    /// # Errors
    /// When a segment is mapped that was not there before.
    pub fn connect(&mut self, shared: &mut SharedMemory) -> Result<()> {
        for (object, (name, inode)) in shared.objects.iter_mut().zip(&shared.places) {
            if !name.starts_with(MAPPED_NAME) {
                continue;
            }
            let segment = self.memory.iter().position(|memory| memory.identity.id == *inode as i32);
            let segment = segment.ok_or_else(|| {
                let what = Kind::Memory.shown(*inode as i32);
                Error::unsupported(what, "the kernel does not list it (/proc/sysvipc/shm)", "detach it")
            })?;
            (object.sysv, object.bytes) = (Some(segment as u32), self.memory[segment].mapped_bytes());
        }
        for &(inode, attachment) in &shared.attachments {
            let known = self.memory.iter_mut().find(|memory| memory.identity.id == inode as i32);
            if let Some(memory) = known.filter(|memory| !memory.attachments.contains(&attachment)) {
                memory.attachments.push(attachment);
            }
        }
        Ok(())
    }

    /// Writes what no mapping shows, and adds all to `objects`.
    pub fn store(self, attempt: &mut Attempt, objects: &mut Objects) -> Result<()> {
        objects.sysv_memory = self.memory;
        for (memory, content) in objects.sysv_memory.iter_mut().zip(self.contents) {
            let Some(content) = content else { continue };
            let mut list = PageList::new();
            let all = PageSet::of(0..(content.len() / PAGE_BYTES) as u64);
            pages::store_held(&content, &all, attempt, &mut list)?;
            memory.content = Some(FileContent { bytes: memory.bytes, pages: attempt.write_page_list(&list)? });
        }
        (objects.sysv_semaphores, objects.sysv_queues) = (self.semaphores, self.queues);
        Ok(())
    }
}

fn refused(kind: Kind, row: &Row, why: &str) -> Error {
    Error::unsupported(kind.shown(row.id), why, OTHERWISE)
}

fn failed(action: &'static str, kind: Kind, row: &Row) -> impl Fn(Errno) -> Error {
    let what = kind.shown(row.id);
    move |source| Error::io(action, what.clone(), source)
}

fn identity(row: &Row) -> SysvIdentity {
    let number = |name| row.number(name) as u32;
    SysvIdentity {
        id: row.id,
        key: row.key(),
        mode: row.mode() & 0o777,
        uid: number("uid"),
        gid: number("gid"),
        creator_uid: number("cuid"),
        creator_gid: number("cgid"),
    }
}

/// The key in `/SYSV00001234 (deleted)`.
fn key_in(name: &[u8]) -> i32 {
    let digits = name.get(MAPPED_NAME.len()..MAPPED_NAME.len() + 8).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0) as i32
}

/// Whether `mappings` show every page of a segment.
fn covers(mappings: &[maps::Mapping], bytes: u64) -> bool {
    let mut parts: Vec<(u64, u64)> = mappings.iter().map(|part| (part.offset, part.offset + part.bytes())).collect();
    parts.sort_unstable();
    let shown = parts.iter().fold(0, |shown, &(from, to)| if from <= shown { shown.max(to) } else { shown });
    shown >= bytes
}

/// All pages of a segment, by attaching it for a moment.
fn content(row: &Row) -> Result<Vec<u8>> {
    let bytes = (row.number("size") as usize).next_multiple_of(PAGE_BYTES);
    // SAFETY: the kernel chooses a free place.
    let at = unsafe { libc::shmat(row.id, ptr::null(), libc::SHM_RDONLY) };
    if at as isize == -1 {
        return Err(failed("attach", Kind::Memory, row)(Errno::last()));
    }
    let mut content = vec![0; bytes];
    // SAFETY: so many bytes are attached at `at`; all processes that could write to them stand still, and a torn byte of another
    // would be one all the same.
    unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), content.as_mut_ptr(), bytes) };
    // SAFETY: it was attached there, and nothing refers to it any more.
    unsafe { libc::shmdt(at) };
    Ok(content)
}

/// The processes that have changed the semaphores of a set last; none of a set that may not be read.
fn users(row: &Row) -> Vec<i32> {
    let count = row.number("nsems") as i32;
    // SAFETY: takes numbers only.
    let all = (0..count).map(|number| Errno::result(unsafe { libc::semctl(row.id, number, GETPID) }));
    all.collect::<nix::Result<_>>().unwrap_or_default()
}

fn values(row: &Row) -> Result<Vec<u16>> {
    let mut values = vec![0u16; row.number("nsems") as usize];
    // SAFETY: the call writes one value for each semaphore; their number never changes.
    let read = unsafe { libc::semctl(row.id, 0, GETALL, values.as_mut_ptr()) };
    Errno::result(read).map_err(failed("read", Kind::Semaphores, row))?;
    Ok(values)
}

fn capacity(row: &Row) -> Result<u64> {
    // SAFETY: a msqid_ds is integers, for which zero is a value.
    let mut about: libc::msqid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one msqid_ds.
    let read = unsafe { libc::msgctl(row.id, libc::IPC_STAT, &raw mut about) };
    Errno::result(read).map_err(failed("examine", Kind::Queue, row))?;
    Ok(about.msg_qbytes)
}

/// What is queued, without taking it.
fn messages(row: &Row) -> Result<Vec<SysvMessage>> {
    let mut messages = Vec::new();
    let mut room = (row.number("cbytes") as usize).min(MESSAGE_MAX);
    let mut buffer = vec![0u64; 1 + room.div_ceil(8)];
    for index in 0.. {
        let flags = MSG_COPY | libc::IPC_NOWAIT;
        // SAFETY: the call writes the type and at most `room` bytes behind it.
        let copied = unsafe { libc::msgrcv(row.id, buffer.as_mut_ptr().cast(), room, index, flags) };
        match Errno::result(copied) {
            Ok(bytes) => {
                let text = buffer[1..].as_bytes()[..bytes as usize].to_vec();
                messages.push(SysvMessage { kind: buffer[0] as i64, text });
            }
            Err(Errno::ENOMSG) => break,
            Err(Errno::E2BIG) if room < MESSAGE_MAX => {
                room = MESSAGE_MAX;
                buffer.resize(1 + room.div_ceil(8), 0);
            }
            Err(Errno::ENOSYS) => {
                return Err(refused(Kind::Queue, row, "this kernel cannot copy messages (CONFIG_CHECKPOINT_RESTORE)"));
            }
            Err(source) => return Err(failed("copy the messages of", Kind::Queue, row)(source)),
        }
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_covered_by_parts_that_leave_no_gap() {
        let part = |offset: u64, bytes: u64| maps::Mapping { end: bytes, offset, ..maps::Mapping::default() };
        assert!(covers(&[part(0x1000, 0x1000), part(0, 0x1000)], 0x2000));
        assert!(covers(&[part(0, 0x2000), part(0, 0x2000)], 0x2000));
        assert!(!covers(&[part(0x1000, 0x1000)], 0x2000));
        assert!(!covers(&[part(0, 0x1000), part(0x2000, 0x1000)], 0x3000));
        assert!(!covers(&[], 1));
    }

    #[test]
    fn the_key_of_a_segment_is_in_its_name() {
        assert_eq!(key_in(b"/SYSV00001234 (deleted)"), 0x1234);
        assert_eq!(key_in(b"/SYSVffffffff"), -1);
    }
}
