//! A checkpoint as `ckpt show` presents it: the same fields in JSON and for people.
//!
//! Scripts depend on the names. Text from the program (paths, names, arguments) need not be UTF-8; what is not
//! becomes U+FFFD.

use ckpt_store::{AttemptRow, Depth, Digest};
use serde::Serialize;

use super::allocations::{self, AllocationView};
use super::{names, sockets};
use crate::image::{
    Allocation, Backing, CapturedKind, DeviceImage, DevicesImage, EndedChild, FileKind, Image, JobImage, Moved,
    Objects, OpenFile, ProcessImage, Region, ThreadImage,
};
use crate::stored_content::why_missing_in_full;

/// Everything about a checkpoint.
#[derive(Serialize)]
pub struct CheckpointView {
    pub id: u64,
    pub job: String,
    pub name: String,
    pub trigger: String,
    /// full, or data.
    pub depth: Depth,
    pub sealed_unix_s: Option<u64>,
    pub memory_bytes: u64,
    pub new_bytes: u64,
    /// Bytes of files that are to be stored behind the seal.
    pub pending_bytes: u64,
    /// Bytes that were added behind the seal.
    pub behind_bytes: u64,
    pub stop_ms: f64,
    pub total_ms: f64,
    /// What the store names its pages by: sha1 or blake3.
    pub digest: &'static str,
    /// The host it was taken on.
    pub host: HostView,
    pub processes: Vec<ProcessView>,
    pub threads: Vec<ThreadView>,
    pub regions: Vec<RegionView>,
    /// How many differences the regions of method `tree` need: those of this checkpoint and of earlier ones.
    pub differences: usize,
    /// Large allocations of the heap, and all of GPUs.
    pub allocations: Vec<AllocationView>,
    pub descriptors: Vec<DescriptorView>,
    /// GPUs that processes had.
    pub devices: Vec<DeviceView>,
    /// What is put back by a restart, and files that no path leads to.
    pub files: Vec<FileView>,
    /// Where the bytes went.
    pub bytes: BytesView,
    /// What had to be moved for a checkpoint of data, in bytes.
    pub moved: Option<Moved>,
}

/// A GPU, as a process had it.
#[derive(Serialize)]
pub struct DeviceView {
    /// The process.
    pub pid: i32,
    /// Its number in that.
    pub number: usize,
    /// As nvidia-smi names it.
    pub uuid: String,
    /// Empty where that was not to be learned.
    pub model: String,
    /// Bytes that the process had allocated there.
    pub bytes: u64,
    /// How many of them are stored by themselves; the others are in its memory, where the driver has put them.
    pub stored_bytes: u64,
}

/// A host.
#[derive(Serialize)]
pub struct HostView {
    pub kernel_release: String,
    pub processor: String,
    pub ckpt_version: String,
}

/// A process.
#[derive(Serialize)]
pub struct ProcessView {
    pub pid: i32,
    /// Its parent, if that is a process of the job.
    pub parent: Option<i32>,
    pub executable: String,
    /// The arguments.
    pub command_line: Vec<String>,
    /// Its children that have ended and were not waited for.
    pub ended: Vec<EndedView>,
    /// What follows is null in a checkpoint of data.
    pub cwd: Option<String>,
    pub threads: Option<usize>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// A process that has ended.
#[derive(Clone, Serialize)]
pub struct EndedView {
    pub pid: i32,
    pub name: String,
    /// `exit status 1`, `signal 9`.
    pub how: String,
}

/// A thread.
#[derive(Clone, Serialize)]
pub struct ThreadView {
    pub pid: i32,
    pub tid: i32,
    pub name: String,
    /// The system call it was waiting in.
    pub waiting_in: Option<String>,
}

/// A mapping.
#[derive(Serialize)]
pub struct RegionView {
    /// m and its index in the image.
    pub id: String,
    /// Hexadecimal, with 0x.
    pub address: String,
    pub bytes: u64,
    /// anonymous, private_file, shared_file, shared_object, heap or stack.
    pub kind: &'static str,
    pub name: String,
    /// As in /proc/PID/maps: `rw-p`.
    pub protection: String,
    /// How its content is stored: `pages`, or `tree`, in differences finer than a page.
    pub method: &'static str,
}

/// An entry of the descriptor table.
#[derive(Clone, Serialize)]
pub struct DescriptorView {
    pub number: i32,
    pub kind: &'static str,
    pub target: String,
    /// `O_RDWR`, `O_APPEND` ...
    pub flags: Vec<&'static str>,
    /// Bytes; where the kind has one.
    pub offset: Option<u64>,
}

/// A file, directory or symbolic link whose content is in the checkpoint.
#[derive(Serialize)]
pub struct FileView {
    /// f and its index in the image.
    pub id: String,
    pub path: String,
    /// regular, directory, symbolic_link, deleted or memory.
    pub kind: &'static str,
    pub bytes: u64,
    /// Permission bits, octal.
    pub mode: String,
}

/// What became of the memory.
#[derive(Clone, Copy, Serialize)]
pub struct BytesView {
    pub zero: u64,
    pub duplicate: u64,
    pub new: u64,
    pub compressed: u64,
}

impl CheckpointView {
    /// The view of a checkpoint's row and image, in a store of this digest.
    pub fn new(row: &AttemptRow, image: &Image, digest: Digest) -> CheckpointView {
        let written = row.written;
        let (host, whole, data) = match image {
            Image::Job(image) => (&image.host, Some(image), None),
            Image::Data(image) => (&image.host, None, Some(image)),
        };
        CheckpointView {
            id: row.id,
            job: row.job.clone(),
            name: row.name.clone(),
            trigger: row.trigger.clone(),
            depth: row.depth,
            sealed_unix_s: row.sealed_unix_s,
            memory_bytes: row.memory_bytes,
            new_bytes: row.new_bytes,
            pending_bytes: row.pending_bytes,
            behind_bytes: row.behind_bytes,
            stop_ms: row.stop_ms,
            total_ms: row.total_ms,
            digest: digest.name(),
            host: HostView {
                kernel_release: host.kernel_release.clone(),
                processor: host.processor.clone(),
                ckpt_version: host.ckpt_version.clone(),
            },
            processes: processes(image),
            threads: whole.map(|image| threads(image)).unwrap_or_default(),
            regions: whole.map(|image| regions(image.root())).unwrap_or_default(),
            differences: match image {
                Image::Job(image) => {
                    let on_devices =
                        |process: &ProcessImage| process.devices.as_ref().map_or(0, DevicesImage::differences);
                    image.processes.iter().map(|process| process.differences.len() + on_devices(process)).sum()
                }
                Image::Data(image) => image.series.iter().map(Vec::len).sum(),
            },
            allocations: allocations::views(image.allocations(), allocations::code_of(image), |it| left_out(image, it)),
            descriptors: whole.map(|image| descriptors(image)).unwrap_or_default(),
            devices: whole.map(|image| devices(image)).unwrap_or_default(),
            files: whole.map(|image| files(&image.objects)).unwrap_or_default(),
            bytes: BytesView {
                zero: written.zero_bytes,
                duplicate: written.duplicate_bytes,
                new: written.new_bytes,
                compressed: written.compressed_bytes,
            },
            moved: data.map(|data| data.moved),
        }
    }
}

/// Why the content of an allocation is not in the checkpoint, if it is not.
fn left_out(image: &Image, allocation: &Allocation) -> Option<String> {
    match image {
        Image::Job(image) => why_missing_in_full(image.root(), allocation).map(str::to_owned),
        Image::Data(image) => image.left_out.iter().find(|it| it.id == allocation.id).map(|it| it.why.clone()),
    }
}

fn processes(image: &Image) -> Vec<ProcessView> {
    let view = |pid, parent, executable: &[u8], command_line: &[u8], whole: Option<&ProcessImage>| {
        let line = command_line.strip_suffix(&[0]).unwrap_or(command_line);
        ProcessView {
            pid,
            parent,
            executable: lossy(executable),
            command_line: line.split(|&byte| byte == 0).map(lossy).collect(),
            ended: whole.map(|image| image.family.ended_children.iter().map(ended).collect()).unwrap_or_default(),
            cwd: whole.map(|image| lossy(&image.working_directory)),
            threads: whole.map(|image| image.threads.len()),
            uid: whole.map(|image| image.uids[0]),
            gid: whole.map(|image| image.gids[0]),
        }
    };
    match image {
        Image::Job(image) => {
            let parent = |it: &ProcessImage| Some(image.processes.get(it.family.parent? as usize)?.pid);
            let whole = |it: &ProcessImage| view(it.pid, parent(it), &it.executable, &it.command_line, Some(it));
            image.processes.iter().map(whole).collect()
        }
        Image::Data(image) => vec![view(image.pid, None, &image.executable, &image.command_line, None)],
    }
}

fn ended(child: &EndedChild) -> EndedView {
    let how = match libc::WIFSIGNALED(child.status) {
        true => format!("signal {}", libc::WTERMSIG(child.status)),
        false => format!("exit status {}", libc::WEXITSTATUS(child.status)),
    };
    EndedView { pid: child.pid, name: lossy(&child.name), how }
}

fn regions(image: &ProcessImage) -> Vec<RegionView> {
    image.regions.iter().enumerate().map(|(id, region)| region_view(id, region)).collect()
}

fn devices(image: &JobImage) -> Vec<DeviceView> {
    let of_process = |process: &ProcessImage| -> Vec<DeviceView> {
        let Some(devices) = &process.devices else { return Vec::new() };
        let view = |(number, device): (usize, &DeviceImage)| DeviceView {
            pid: process.pid,
            number,
            uuid: device.name(),
            model: device.model.clone(),
            bytes: device.used_bytes,
            stored_bytes: devices.piece_bytes_on(number as i32),
        };
        devices.devices.iter().enumerate().map(view).collect()
    };
    image.processes.iter().flat_map(of_process).collect()
}

fn files(objects: &Objects) -> Vec<FileView> {
    let captured = objects.captured_files.iter().map(|file| {
        let (kind, bytes) = match &file.kind {
            CapturedKind::Regular { content, .. } => ("regular", content.bytes),
            CapturedKind::Directory => ("directory", 0),
            CapturedKind::SymbolicLink { target } => ("symbolic_link", target.len() as u64),
        };
        (&file.path, kind, bytes, file.mode)
    });
    let unlinked = objects.unlinked_files.iter().map(|file| {
        let kind = if file.memory_seals.is_some() { "memory" } else { "deleted" };
        (&file.path, kind, file.content.bytes, file.mode)
    });
    let view = |(index, (path, kind, bytes, mode)): (usize, (&Vec<u8>, _, _, _))| FileView {
        id: format!("f{index}"),
        path: lossy(path),
        kind,
        bytes,
        mode: format!("{mode:04o}"),
    };
    captured.chain(unlinked).enumerate().map(view).collect()
}

/// The threads of all processes.
pub fn threads(image: &JobImage) -> Vec<ThreadView> {
    let of = |process: &ProcessImage| -> Vec<ThreadView> {
        process.threads.iter().map(|thread| thread_view(process.pid, thread)).collect()
    };
    image.processes.iter().flat_map(of).collect()
}

fn thread_view(pid: i32, thread: &ThreadImage) -> ThreadView {
    let waiting_in = thread.waiting_call.map(names::system_call);
    ThreadView { pid, tid: thread.tid, name: lossy(&thread.name), waiting_in }
}

fn region_view(id: usize, region: &Region) -> RegionView {
    RegionView {
        id: format!("m{id}"),
        address: format!("{:#x}", region.address),
        bytes: region.bytes,
        kind: kind(region),
        name: lossy(&region.name),
        protection: protection(region),
        method: if region.in_differences { "tree" } else { "pages" },
    }
}

/// What a region is, in a word.
pub fn kind(region: &Region) -> &'static str {
    match region.backing {
        Backing::Anonymous if region.name == b"[heap]" => "heap",
        Backing::Anonymous if region.name.starts_with(b"[stack") => "stack",
        Backing::Anonymous => "anonymous",
        Backing::PrivateFile(_) => "private_file",
        Backing::SharedFile { .. } => "shared_file",
        Backing::SharedObject { .. } => "shared_object",
    }
}

/// Its rights as in /proc/PID/maps.
pub fn protection(region: &Region) -> String {
    let shared = matches!(region.backing, Backing::SharedFile { .. } | Backing::SharedObject { .. });
    let right = |bit, letter| if region.protection & bit != 0 { letter } else { '-' };
    let rights = [right(libc::PROT_READ, 'r'), right(libc::PROT_WRITE, 'w'), right(libc::PROT_EXEC, 'x')];
    rights.into_iter().chain([if shared { 's' } else { 'p' }]).collect()
}

/// The descriptor table of the first process.
pub fn descriptors(image: &JobImage) -> Vec<DescriptorView> {
    let known = image.root().descriptors.iter().filter_map(|descriptor| {
        let file = image.objects.files.get(descriptor.file as usize)?;
        let mut flags = names::open_flags(file.flags);
        if descriptor.close_on_exec {
            flags.push("O_CLOEXEC");
        }
        let (kind, target, offset) = target(file, &image.objects);
        Some(DescriptorView { number: descriptor.number, kind, target, flags, offset })
    });
    known.collect()
}

/// Kind, target and offset of an open file.
fn target(file: &OpenFile, objects: &Objects) -> (&'static str, String, Option<u64>) {
    match &file.kind {
        FileKind::Regular { path, offset, .. } => ("regular", lossy(path), Some(*offset)),
        FileKind::Unlinked { file, offset } => {
            let unlinked = objects.unlinked_files.get(*file as usize);
            ("unlinked", unlinked.map(|file| lossy(&file.path)).unwrap_or_default(), Some(*offset))
        }
        FileKind::Directory { path, offset, removed: None } => ("directory", lossy(path), Some(*offset)),
        FileKind::Directory { path, offset, .. } => ("directory", format!("{} (removed)", lossy(path)), Some(*offset)),
        FileKind::Named { path, .. } => ("path", lossy(path), None),
        FileKind::Device { path } => ("device", lossy(path), None),
        FileKind::Standard { stream, was } => ("standard", format!("{stream} (was {})", lossy(was)), None),
        FileKind::TerminalMaster { terminal } => ("terminal master", of_terminal(*terminal, objects), None),
        FileKind::Terminal { terminal, own: false } => ("terminal", of_terminal(*terminal, objects), None),
        FileKind::Terminal { terminal, own: true } => {
            ("terminal", format!("/dev/tty ({})", of_terminal(*terminal, objects)), None)
        }
        FileKind::HungUpTerminal { was } => ("terminal", format!("hung up (was {})", lossy(was)), None),
        FileKind::Pipe { pipe } => {
            let leads_outside = objects.pipes.get(*pipe as usize).is_some_and(|pipe| pipe.outside);
            ("pipe", if leads_outside { "outside the job".to_owned() } else { format!("pipe {pipe} of the job") }, None)
        }
        FileKind::Socket(socket) => ("socket", sockets::in_words(socket), None),
        FileKind::EventFd { count, semaphore: false } => ("eventfd", format!("count {count}"), None),
        FileKind::EventFd { count, semaphore: true } => ("eventfd", format!("count {count}, semaphore"), None),
        &FileKind::TimerFd { left_ns, interval_ns, ticks, .. } => {
            let seconds = |ns: u64| ns as f64 / 1e9;
            let runs = match (left_ns, interval_ns) {
                (0, _) => "not running".to_owned(),
                (left, 0) => format!("{:.3} s left", seconds(left)),
                (left, interval) => format!("{:.3} s left, every {:.3} s", seconds(left), seconds(interval)),
            };
            ("timerfd", if ticks == 0 { runs } else { format!("{runs}, {ticks} expiries not read") }, None)
        }
        FileKind::SignalFd { mask } => ("signalfd", format!("mask {mask:#x}"), None),
        FileKind::Epoll { targets } => {
            let numbers: Vec<_> = targets.iter().map(|target| target.number.to_string()).collect();
            ("epoll", format!("watches {}", listed(&numbers)), None)
        }
        FileKind::MessageQueue { queue } => {
            let queue = objects.message_queues.get(*queue as usize);
            ("message queue", queue.map(|queue| format!("/{}", lossy(&queue.name))).unwrap_or_default(), None)
        }
        FileKind::IoUring(ring) => ("io_uring", format!("{} requests, {} were done", ring.entries, ring.used), None),
        FileKind::PidFd { pid: 0, .. } => ("pidfd", "a process that has ended".to_owned(), None),
        FileKind::PidFd { pid, .. } => ("pidfd", format!("process {pid}"), None),
        FileKind::OfProcess { pid: 0, path, .. } => ("process", format!("{} (has ended)", lossy(path)), None),
        FileKind::OfProcess { path, .. } => ("process", lossy(path), None),
        FileKind::Fanotify(group) => {
            let paths: Vec<_> = group.marks.iter().map(|mark| lossy(&mark.path)).collect();
            ("fanotify", format!("marks {}", listed(&paths)), None)
        }
        FileKind::Inotify { watches } => {
            let paths: Vec<_> = watches.iter().map(|watch| lossy(&watch.path)).collect();
            ("inotify", format!("watches {}", listed(&paths)), None)
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Which of the job's own terminals it is.
fn of_terminal(terminal: u32, objects: &Objects) -> String {
    let number = objects.pseudo_terminals.get(terminal as usize).map(|terminal| terminal.number);
    number.map(|number| format!("/dev/pts/{number} of the job")).unwrap_or_default()
}

/// Text from the program, as far as it is text.
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
