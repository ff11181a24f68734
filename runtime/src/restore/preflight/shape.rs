//! An image must make sense by itself before anything believes its indices and addresses.
//!
//! It may come from anybody. Whatever passes here can be added up without passing the end of a number, and names only
//! what the image has. What the host and the kernel refuse is their affair: that happens to a half-built process, which
//! is then killed.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::image::{
    Backing, FileIdentity, FileKind, Filter, JobImage, LostLeader, Objects, OpenFile, PageRange, PipeContent,
    ProcessImage, Region, SharedObject, Socket, SocketLink, SysvMemory, SysvQueue, SysvSemaphores, ThreadImage,
};
use crate::io_uring;
use crate::net::FILES_MAX;
use crate::ptrace::{Registers, SIGINFO_BYTES};
use crate::restore::ranges::HIGHEST;

/// Bytes of the extended state's legacy area and header, less than which no kernel takes.
const EXTENDED_STATE_BYTES_MIN: usize = 576;
/// And more than which no processor has.
const EXTENDED_STATE_BYTES_MAX: usize = 64 << 10;
/// Process and thread ids end here on every kernel (PID_MAX_LIMIT).
const ID_MAX: i32 = 1 << 22;
/// Far more descriptors than a kernel can keep a table of.
const DESCRIPTOR_MAX: i32 = 1 << 28;
/// Bytes of a `struct sockaddr_storage`.
const ADDRESS_MAX_BYTES: usize = 128;
/// The largest offset in a file.
const OFFSET_MAX: u64 = i64::MAX as u64;
const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;

/// Checks the relations within the image of checkpoint `id`.
///
/// # Errors
/// [`Error::BadImage`] with the first that cannot be.
pub fn check(id: u64, job: &JobImage) -> Result<()> {
    match flaw(job) {
        Some(why) => Err(Error::BadImage { id, why }),
        None => Ok(()),
    }
}

fn flaw(job: &JobImage) -> Option<String> {
    let process_flaw = |process| process_flaw(job, process);
    ids_flaw(job)
        .or_else(|| files_flaw(&job.objects))
        .or_else(|| rings_flaw(&job.objects))
        .or_else(|| sysv_flaw(&job.objects, page_bytes(job)))
        .or_else(|| job.processes.iter().find_map(process_flaw))
}

fn process_flaw(job: &JobImage, image: &ProcessImage) -> Option<String> {
    let page = page_bytes(job);
    threads_flaw(image)
        .or_else(|| descriptors_flaw(image, &job.objects))
        .or_else(|| locks_flaw(image))
        .or_else(|| mappings_flaw(image, page))
        .or_else(|| image.regions.iter().find_map(|region| region_flaw(image, &job.objects, region, page)))
}

/// Ids belong to one thread of the job each, and parents come before their children.
fn ids_flaw(job: &JobImage) -> Option<String> {
    let mut seen = HashSet::new();
    if let Some(twice) = job.ids().find(|id| !seen.insert(*id)) {
        return Some(format!("there are two threads {twice}"));
    }
    if let Some(wrong) = job.ids().find(|id| !(1..=ID_MAX).contains(id)) {
        return Some(format!("no thread has the id {wrong}"));
    }
    let mut places = job.processes.iter().zip(0..);
    let is_wrong = |process: &ProcessImage, place: u32| process.family.parent.is_some_and(|parent| parent >= place);
    if let Some((orphan, _)) = places.find(|(process, place)| is_wrong(process, *place)) {
        return Some(format!("process {} has no parent before it", orphan.pid));
    }
    let is_ended_child = |leader: &&LostLeader| {
        let parent = leader.child_of.map(|parent| job.processes.get(parent as usize));
        let has_it = |process: &ProcessImage| process.family.ended_children.iter().any(|ended| ended.pid == leader.pid);
        parent.is_none_or(|parent| parent.is_some_and(has_it))
    };
    if let Some(wrong) = job.lost_leaders.iter().find(|leader| !is_ended_child(leader)) {
        return Some(format!("no process has {}, which led a session, as a child that has ended", wrong.pid));
    }
    let unborn = job.births(true).err()?;
    Some(format!("process {} cannot have its parent and its session", job.processes[unborn].pid))
}

fn threads_flaw(image: &ProcessImage) -> Option<String> {
    let Some(main) = image.threads.first() else { return Some("it has no threads".into()) };
    if main.tid != image.pid {
        return Some(format!("the first thread is {}, the process {}", main.tid, image.pid));
    }
    if let Some(flaw) = image.threads.iter().find_map(thread_flaw) {
        return Some(flaw);
    }
    if image.queued_signals.iter().any(|signal| signal.len() != SIGINFO_BYTES) {
        return Some("a signal queued for the process is incomplete".into());
    }
    if let Some(flaw) = filters_flaw(image) {
        return Some(flaw);
    }
    let wrong = image.signal_actions.iter().find(|action| !(1..=64).contains(&action.signal))?;
    Some(format!("there is no signal {}", wrong.signal))
}

fn filters_flaw(image: &ProcessImage) -> Option<String> {
    let is_whole = |bytes: usize| {
        bytes.is_multiple_of(Filter::INSTRUCTION_BYTES)
            && (1..=Filter::INSTRUCTIONS_MAX).contains(&(bytes / Filter::INSTRUCTION_BYTES))
    };
    if let Some(wrong) = image.filters.iter().find(|filter| !is_whole(filter.instructions.len())) {
        return Some(format!("no seccomp filter has {} bytes", wrong.instructions.len()));
    }
    let used = image.threads.iter().flat_map(|thread| &thread.filters);
    let lost = used.max().filter(|highest| **highest as usize >= image.filters.len())?;
    Some(format!("seccomp filter {lost} is missing"))
}

fn thread_flaw(thread: &ThreadImage) -> Option<String> {
    let tid = thread.tid;
    if !(1..=ID_MAX).contains(&tid) {
        return Some(format!("no thread has the id {tid}"));
    }
    let state = EXTENDED_STATE_BYTES_MIN..=EXTENDED_STATE_BYTES_MAX;
    if thread.registers.len() != Registers::WORDS || !state.contains(&thread.extended_state.len()) {
        return Some(format!("the registers of thread {tid} are incomplete"));
    }
    if thread.queued_signals.iter().any(|signal| signal.len() != SIGINFO_BYTES) {
        return Some(format!("a signal queued for thread {tid} is incomplete"));
    }
    let rseq = thread.rseq.as_ref().filter(|rseq| rseq.address >= HIGHEST)?;
    Some(format!("the rseq of thread {tid} is at {:#x}, which is no address of a program", rseq.address))
}

fn descriptors_flaw(image: &ProcessImage, objects: &Objects) -> Option<String> {
    let mut numbers: Vec<i32> = image.descriptors.iter().map(|descriptor| descriptor.number).collect();
    numbers.sort_unstable();
    if numbers.first().is_some_and(|&lowest| lowest < 0) || numbers.windows(2).any(|pair| pair[0] == pair[1]) {
        return Some("a descriptor's number is negative or occurs twice".into());
    }
    if let Some(highest) = numbers.last().filter(|highest| **highest > DESCRIPTOR_MAX) {
        return Some(format!("there is no descriptor {highest}"));
    }
    let lost = image.descriptors.iter().find(|descriptor| descriptor.file as usize >= objects.files.len())?;
    Some(format!("descriptor {} leads nowhere", lost.number))
}

fn files_flaw(objects: &Objects) -> Option<String> {
    if let Some(lost) = objects.signal_driven.iter().find(|driven| driven.file as usize >= objects.files.len()) {
        return Some(format!("open file {} signals somebody, and is missing", lost.file));
    }
    let divided = |pipe: &&PipeContent| {
        let bytes: u64 = pipe.pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        pipe.pieces.is_empty() || bytes == pipe.content.len() as u64
    };
    if let Some(index) = objects.pipes.iter().position(|pipe| !divided(&pipe)) {
        return Some(format!("what lies in pipe {index} is not in pieces of its length"));
    }
    if objects.files.iter().filter(|file| file.is_handed_over()).count() > FILES_MAX {
        return Some(format!(
            "there are more than {FILES_MAX} descriptors of processes, inotify instances and fanotify groups"
        ));
    }
    objects.files.iter().find_map(|file| match file.kind {
        FileKind::Pipe { pipe } if pipe as usize >= objects.pipes.len() => Some(format!("pipe {pipe} is missing")),
        FileKind::MessageQueue { queue } if queue as usize >= objects.message_queues.len() => {
            Some(format!("message queue {queue} is missing"))
        }
        FileKind::TerminalMaster { terminal } | FileKind::Terminal { terminal, .. }
            if terminal as usize >= objects.pseudo_terminals.len() =>
        {
            Some(format!("terminal {terminal} is missing"))
        }
        FileKind::Standard { stream, .. } if !(0..=2).contains(&stream) => {
            Some(format!("{stream} is not a standard stream"))
        }
        FileKind::Regular { size, offset, .. } if size.max(offset) > OFFSET_MAX => {
            Some(format!("no file has {size} bytes or the offset {offset}"))
        }
        FileKind::Socket(ref socket) => socket_flaw(socket, objects),
        FileKind::Epoll { ref targets } => {
            let lost =
                targets.iter().filter_map(|target| target.file).find(|&file| file as usize >= objects.files.len());
            lost.map(|file| format!("open file {file} is watched, and is missing"))
        }
        _ => None,
    })
}

/// What of a socket a restart would stumble over.
fn socket_flaw(socket: &Socket, objects: &Objects) -> Option<String> {
    let is_file = |file: u32| (file as usize) < objects.files.len();
    let is_socket =
        |file: u32| matches!(objects.files.get(file as usize), Some(OpenFile { kind: FileKind::Socket(_), .. }));
    let mut names = vec![&socket.name];
    names.extend(socket.unread.iter().map(|message| &message.from));
    let linked = match &socket.link {
        SocketLink::Peer { file } | SocketLink::Waiting { file } => Some(*file),
        SocketLink::Address(name) | SocketLink::Closed { name, .. } | SocketLink::Outside { name } => {
            names.push(name);
            None
        }
        SocketLink::None | SocketLink::Listening { .. } => None,
    };
    if let Some(file) = linked.filter(|&file| !is_socket(file)) {
        return Some(format!("a socket is connected with open file {file}, which is none"));
    }
    if let Some(name) = names.iter().find(|name| name.len() > ADDRESS_MAX_BYTES) {
        return Some(format!("no socket has an address of {} bytes", name.len()));
    }
    let too_many = socket.unread.iter().find(|message| message.files.len() > FILES_MAX);
    if let Some(message) = too_many {
        return Some(format!("no message comes with {} descriptors", message.files.len()));
    }
    let mut in_flight = socket.unread.iter().flat_map(|message| &message.files);
    let lost = in_flight.find(|&&file| !is_file(file))?;
    Some(format!("open file {lost} is on its way through a socket, and is missing"))
}

fn rings_flaw(objects: &Objects) -> Option<String> {
    let is_ring =
        |file: u32| matches!(objects.files.get(file as usize), Some(OpenFile { kind: FileKind::IoUring(_), .. }));
    let is_missing = |object: &&SharedObject| object.ring.is_some_and(|ring| !is_ring(ring));
    if let Some(object) = objects.memory.iter().find(is_missing) {
        return Some(format!("io_uring instance {:?} of a mapping is missing", object.ring));
    }
    objects.files.iter().find_map(|file| match &file.kind {
        FileKind::IoUring(ring) if !io_uring::is_possible(ring.entries, ring.completions) => Some(format!(
            "there is no io_uring instance of {} requests and {} completions",
            ring.entries, ring.completions
        )),
        _ => None,
    })
}

fn sysv_flaw(objects: &Objects, page: u64) -> Option<String> {
    let memory = &objects.sysv_memory;
    let is_missing = |object: &&SharedObject| object.sysv.is_some_and(|segment| segment as usize >= memory.len());
    if let Some(object) = objects.memory.iter().find(is_missing) {
        return Some(format!("System V segment {:?} of a mapping is missing", object.sysv));
    }
    let reaches_too_far = |memory: &&SysvMemory| {
        let wrong = |at: u64| !at.is_multiple_of(page) || at.checked_add(memory.bytes).is_none_or(|end| end > HIGHEST);
        memory.bytes == 0 || wrong(0) || memory.attachments.iter().any(|attachment| wrong(attachment.address))
    };
    if let Some(wrong) = memory.iter().find(reaches_too_far) {
        return Some(format!("System V segment {} is impossibly long", wrong.identity.id));
    }
    let is_uneven = |set: &&SysvSemaphores| set.values.is_empty() || set.values.len() != set.users.len();
    if let Some(wrong) = objects.sysv_semaphores.iter().find(is_uneven) {
        return Some(format!("System V semaphores {} are incomplete", wrong.identity.id));
    }
    let has_no_type = |queue: &&SysvQueue| queue.messages.iter().any(|message| message.kind <= 0);
    let wrong = objects.sysv_queues.iter().find(has_no_type)?;
    Some(format!("a message of System V queue {} has no type", wrong.identity.id))
}

fn locks_flaw(image: &ProcessImage) -> Option<String> {
    let wrong = image.locks.iter().find(|lock| {
        let end = lock.end.unwrap_or(OFFSET_MAX);
        let is_open = image.descriptors.iter().any(|descriptor| descriptor.number == lock.descriptor);
        lock.start > end || end > OFFSET_MAX || !is_open
    })?;
    Some(format!("a lock from byte {} through descriptor {} is impossible", wrong.start, wrong.descriptor))
}

fn mappings_flaw(image: &ProcessImage, page: u64) -> Option<String> {
    let specials = image.special_mappings.iter().map(|mapping| (mapping.address, mapping.bytes));
    let mut spans: Vec<(u64, u64)> =
        image.regions.iter().map(|region| (region.address, region.bytes)).chain(specials).collect();
    spans.sort_unstable();
    let mut free_from = 0;
    for (address, bytes) in spans {
        let end = address.checked_add(bytes).filter(|&end| end <= HIGHEST);
        match end {
            Some(end) if address >= free_from && bytes > 0 && address % page == 0 && bytes % page == 0 => {
                free_from = end;
            }
            _ => return Some(format!("the mapping at {address:#x} is impossible or overlaps another")),
        }
    }
    let mut names = HashSet::new();
    if let Some(twice) = image.special_mappings.iter().find(|mapping| !names.insert(&mapping.name)) {
        return Some(format!("there are two {}", twice.name));
    }
    let outside = image.control >= HIGHEST;
    outside.then(|| format!("the control block is at {:#x}, which is no address of a program", image.control))
}

fn page_bytes(job: &JobImage) -> u64 {
    job.host.page_bytes.max(1).into()
}

fn region_flaw(image: &ProcessImage, objects: &Objects, region: &Region, page: u64) -> Option<String> {
    let pages = region.bytes / page;
    let flaw = |what: &str| Some(format!("the mapping at {:#x} {what}", region.address));
    if region.protection & !PROTECTION != 0 {
        return flaw("has a protection that there is not");
    }
    if region.pages.page_count() > pages {
        return flaw("has more pages than it is long");
    }
    let is_finer = region.backing == Backing::Anonymous && region.protection & libc::PROT_WRITE != 0;
    if region.in_differences && (!is_finer || region.pages.page_count() > 0 || image.differences.is_empty()) {
        return flaw("cannot be in differences, or there are none");
    }
    if !ascend_within(&region.own_pages, pages) {
        return flaw("owns pages outside itself, or twice");
    }
    if !ascend_within(&region.guards, pages) {
        return flaw("has guards outside itself, or twice");
    }
    let is_view = matches!(&region.backing, Backing::PrivateFile(file) if file.deleted);
    if region.follows.is_some_and(|object| !is_view || object as usize >= objects.memory.len()) {
        return flaw("shows a memory object that there is not");
    }
    match &region.backing {
        Backing::Anonymous => None,
        Backing::PrivateFile(file) | Backing::SharedFile { file, .. } => {
            if fits_file(file, region.bytes, page) {
                None
            } else {
                flaw("lies where no file has bytes")
            }
        }
        Backing::SharedObject { object, offset } => match objects.memory.get(*object as usize) {
            None => Some(format!("shared object {object} is missing")),
            Some(object) => {
                let end = offset.checked_add(region.bytes).filter(|end| *end <= object.bytes.min(OFFSET_MAX));
                if end.is_some() && offset % page == 0 { None } else { flaw("lies outside its shared object") }
            }
        },
    }
}

fn fits_file(file: &FileIdentity, bytes: u64, page: u64) -> bool {
    let end = file.offset.checked_add(bytes).filter(|end| *end <= OFFSET_MAX);
    end.is_some() && file.offset.is_multiple_of(page) && file.size <= OFFSET_MAX
}

/// Whether these ranges lie one behind the other among so many pages.
fn ascend_within(ranges: &[PageRange], pages: u64) -> bool {
    let mut free_from = 0;
    ranges.iter().all(|range| match range.first.checked_add(range.count) {
        Some(end) if end <= pages && range.first >= free_from => {
            free_from = end;
            true
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use ckpt_store::{PageKey, PageList, Store};
    use serde_bytes::ByteBuf;

    use super::*;
    use crate::image::{
        ClockOffsets, Clocks, Descriptor, FileLock, LockKind, MappingDefaults, NewLocks, OpenFile, PageRange, Rseq,
        SharedObject, SysvIdentity, SysvMessage,
    };
    use crate::restore::host::Machine;
    use crate::restore::sample::{self, ScratchDir};

    /// The root of a list of three pages.
    fn three_pages() -> ckpt_store::PageListRef {
        let dir = ScratchDir::new();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        let start = ckpt_store::AttemptStart {
            job: "j".into(),
            name: "n".into(),
            trigger: "test".into(),
            processes: 1,
            ..Default::default()
        };
        let mut attempt = store.begin(start).unwrap();
        let mut list = PageList::new();
        list.set_run(0, &attempt.write_pages(&[7; 3 * 4096]).unwrap());
        assert_ne!(list.get(2), PageKey::ZERO);
        attempt.write_page_list(&list).unwrap()
    }

    fn region(address: u64, backing: Backing) -> Region {
        Region {
            address,
            bytes: 0x4000,
            protection: libc::PROT_READ,
            backing,
            advice: crate::image::Advice::default(),
            name: Vec::new(),
            pages: three_pages(),
            own_pages: Vec::new(),
            follows: None,
            guards: Vec::new(),
            pending: None,
            in_differences: false,
        }
    }

    fn file(offset: u64) -> FileIdentity {
        let path = b"/bin/true".to_vec();
        FileIdentity { path, deleted: false, device: (0, 0), inode: 1, size: 0x4000, mode: 0, offset, times: None }
    }

    fn clocks() -> Clocks {
        let ahead = ClockOffsets { monotonic_ns: -5, boottime_ns: 20_000_000 };
        let boot_id = "01234567-89ab-4cde-8f01-23456789abcd".into();
        Clocks { monotonic_ns: 1 << 45, boottime_ns: 1 << 46, realtime_ns: 1 << 60, ahead, boot_id }
    }

    /// A job with one of everything that is looked at, and sound.
    fn sound() -> JobImage {
        let mut job = sample::job(&Machine::this().unwrap());
        let image = &mut job.processes[0];
        image.regions = vec![
            region(0x1000_0000, Backing::Anonymous),
            region(0x1000_4000, Backing::PrivateFile(file(0x1000))),
            region(0x1000_8000, Backing::SharedObject { object: 0, offset: 0x1000 }),
        ];
        image.regions[1].own_pages = vec![PageRange { first: 0, count: 2 }, PageRange { first: 3, count: 1 }];
        job.objects.memory = vec![SharedObject { bytes: 0x5000, ..SharedObject::default() }];
        let kind = FileKind::Regular {
            path: b"/bin/true".to_vec(),
            device: (0, 0),
            inode: 1,
            size: 10,
            offset: 5,
            modified_ns: 0,
        };
        image.mapping_defaults =
            Some(MappingDefaults { huge_pages_disabled: 3, merged: false, locked: NewLocks::OnFault });
        job.objects.files = vec![OpenFile { kind, flags: 0 }];
        image.descriptors = vec![Descriptor { number: 3, file: 0, close_on_exec: false }];
        let kind = LockKind::Process;
        image.locks = vec![FileLock { descriptor: 3, kind, exclusive: true, start: 5, end: Some(5) }];
        image.queued_signals = vec![ByteBuf::from(vec![0; 128])];
        image.clocks = Some(clocks());
        image.threads.push(sample::thread(300_001));
        image.threads[1].rseq = Some(Rseq { address: 0x1000_0000, bytes: 32, signature: 0 });
        job
    }

    const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/store/fuzz/corpus/image");

    #[test]
    fn the_saved_inputs_of_the_fuzz_target_are_decoded_or_refused() {
        let inputs: Vec<_> = std::fs::read_dir(CORPUS).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            let bytes = std::fs::read(input).unwrap();
            let _ = crate::image::decode(1, &bytes).and_then(|image| check(1, &image));
        }
    }

    /// `cargo test -p ckpt --lib -- --ignored write_seed_of_the_image` writes the input that fuzzing begins with.
    #[test]
    #[ignore = "writes the first input of the fuzz target `image`; to be run when the image has changed"]
    fn write_seed_of_the_image() {
        let mut job = sound();
        job.processes[0].threads.iter_mut().for_each(|thread| thread.extended_state.truncate(EXTENDED_STATE_BYTES_MIN));
        check(1, &job).unwrap();
        std::fs::create_dir_all(CORPUS).unwrap();
        std::fs::write(std::path::Path::new(CORPUS).join("two-threads"), crate::image::encode(&job)).unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_named() {
        check(1, &sound()).unwrap();
        type Change = fn(&mut JobImage);
        let cases: &[(&str, Change)] = &[
            ("System V segment Some(0) of a mapping is missing", |job| job.objects.memory[0].sysv = Some(0)),
            ("System V semaphores 0 are incomplete", |job| {
                let set = SysvSemaphores { identity: SysvIdentity::default(), values: vec![1], users: Vec::new() };
                job.objects.sysv_semaphores.push(set);
            }),
            ("a message of System V queue 0 has no type", |job| {
                let (identity, messages) = (SysvIdentity::default(), vec![SysvMessage { kind: 0, text: Vec::new() }]);
                job.objects.sysv_queues.push(SysvQueue { identity, capacity: 1, sender: 0, receiver: 0, messages });
            }),
            ("is not in pieces of its length", |job| {
                let pieces = vec![crate::image::PipePiece { bytes: 1, packet: true }];
                job.objects.pipes.push(PipeContent { pieces, ..PipeContent::default() });
            }),
            ("has no parent before it", |job| job.processes[0].family.parent = Some(0)),
            ("cannot have its parent and its session", |job| {
                let mut other = job.processes[0].clone();
                other.pid = 300_002;
                other.threads.truncate(1);
                other.threads[0].tid = 300_002;
                other.family.session = 300_002;
                job.processes[0].family.session = 300_002;
                job.processes.push(other);
            }),
            ("no process has 300001", |job| {
                job.lost_leaders.push(LostLeader { pid: 300_001, session: 300_001, child_of: Some(7) });
            }),
            ("two threads 300000", |job| {
                job.lost_leaders.push(LostLeader { pid: 300_000, session: 1, child_of: None })
            }),
            ("no threads", |job| job.processes[0].threads.clear()),
            ("the first thread is", |job| job.processes[0].threads.swap(0, 1)),
            ("two threads 300000", |job| job.processes[0].threads[1].tid = 300_000),
            ("two threads 300000", |job| {
                let mut twin = job.processes[0].clone();
                twin.threads[1].tid = 300_002;
                job.processes.push(twin);
            }),
            ("no thread has the id -1", |job| job.processes[0].threads[1].tid = -1),
            ("no thread has the id", |job| job.processes[0].threads[1].tid = i32::MAX),
            ("registers of thread", |job| job.processes[0].threads[1].registers.push(0)),
            ("registers of thread", |job| job.processes[0].threads[1].extended_state.resize(1 << 20, 0)),
            ("signal queued for thread", |job| {
                job.processes[0].threads[1].queued_signals = vec![ByteBuf::from(vec![0; 4])]
            }),
            ("signal queued for the process", |job| job.processes[0].queued_signals[0].push(0)),
            ("a lock from byte 5", |job| job.processes[0].locks[0].end = Some(4)),
            ("a lock from byte 5", |job| job.processes[0].locks[0].end = Some(u64::MAX)),
            ("through descriptor 4", |job| job.processes[0].locks[0].descriptor = 4),
            ("seccomp filter 0 is missing", |job| job.processes[0].threads[1].filters = vec![0]),
            ("no seccomp filter has 7 bytes", |job| {
                let instructions = serde_bytes::ByteBuf::from([0; 7]);
                job.processes[0].filters.push(Filter { instructions, logs: false });
            }),
            ("the rseq of thread", |job| job.processes[0].threads[1].rseq.as_mut().unwrap().address = u64::MAX - 8),
            ("occurs twice", |job| job.processes[0].descriptors.extend_from_within(..)),
            ("no descriptor 2147483647", |job| job.processes[0].descriptors[0].number = i32::MAX),
            ("leads nowhere", |job| job.processes[0].descriptors[0].file = 1),
            ("pipe 0 is missing", |job| job.objects.files[0].kind = FileKind::Pipe { pipe: 0 }),
            ("terminal 0 is missing", |job| job.objects.files[0].kind = FileKind::TerminalMaster { terminal: 0 }),
            ("terminal 1 is missing", |job| job.objects.files[0].kind = FileKind::Terminal { terminal: 1, own: false }),
            ("no file has", |job| match &mut job.objects.files[0].kind {
                FileKind::Regular { size, .. } => *size = u64::MAX,
                _ => unreachable!(),
            }),
            ("overlaps another", |job| job.processes[0].regions[1].address -= 0x1000),
            ("impossible", |job| job.processes[0].regions[2].address = HIGHEST - 0x1000),
            ("impossible", |job| job.processes[0].regions[2].bytes = u64::MAX - 0xfff),
            ("impossible", |job| job.processes[0].regions[2].bytes = 0),
            ("there are two [v", |job| {
                let mut twin = job.processes[0].special_mappings[0].clone();
                twin.address = 0x2000_0000;
                job.processes[0].special_mappings.push(twin);
            }),
            ("the control block", |job| job.processes[0].control = u64::MAX - 4),
            ("a protection", |job| job.processes[0].regions[0].protection = 1 << 24),
            ("more pages than it is long", |job| job.processes[0].regions[0].bytes = 0x2000),
            ("owns pages", |job| job.processes[0].regions[1].own_pages[1] = PageRange { first: 1, count: 1 }),
            ("owns pages", |job| job.processes[0].regions[1].own_pages[1].count = u64::MAX),
            ("shows a memory object", |job| job.processes[0].regions[1].follows = Some(0)),
            ("has guards", |job| job.processes[0].regions[0].guards = vec![PageRange { first: 3, count: 2 }]),
            ("no file has bytes", |job| {
                job.processes[0].regions[1].backing = Backing::PrivateFile(file(u64::MAX - 0xfff))
            }),
            ("outside its shared object", |job| job.objects.memory[0].bytes = 0x4000),
        ];
        for (expected, change) in cases {
            let mut job = sound();
            change(&mut job);
            let message = check(1, &job).unwrap_err().to_string();
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }
}
