//! Turning the kernel's list of mappings into regions, and refusing what cannot be rebuilt.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use ckpt_kernels::page_digest;
use nix::sys::stat::{major, minor};
use nix::unistd::geteuid;
use serde_bytes::ByteBuf;

use super::linked_names::other_name;
use crate::error::{Error, Result};
use crate::file_stamp::FileStamp;
use crate::image::{Advice, Backing, FileIdentity, SharedObject, SpecialMapping, SysvAttachment};
use crate::io_uring;
use crate::page_set::PageSet;
use crate::proc::maps::Mapping;
use crate::proc::sysvipc::MAPPED_NAME;
use crate::proc::{DELETED, task};
use crate::ptrace::read_memory;

const MEMFD: &[u8] = b"/memfd:";
/// Of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// A mapping whose place in the image is known.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The mapping.
    pub mapping: Mapping,
    /// What is behind it.
    pub backing: Backing,
    /// Its lasting flags.
    pub advice: Advice,
    /// The file as of now, if a path leads to it: what makes "nothing changed" a safe conclusion.
    pub file: Option<FileStamp>,
    /// Whether that file has less than its length on its disk.
    pub is_sparse: bool,
    /// Pages that hold anything, where that is known (`allocated`).
    pub data: Option<PageSet>,
    /// The memory object that its pages come from which are not the program's own, where that can still be written.
    pub follows: Option<u32>,
}

impl Draft {
    /// One of which nothing else is known.
    pub fn new(mapping: Mapping, backing: Backing) -> Draft {
        let advice = Advice::default();
        Draft { mapping, backing, advice, file: None, is_sparse: false, data: None, follows: None }
    }
}

/// All mappings of a process, sorted by what becomes of them.
#[derive(Debug, Default)]
pub struct AddressSpace {
    /// Captured mappings, ascending.
    pub drafts: Vec<Draft>,
    /// `[vdso]`, `[vvar]`, `[vvar_vclock]`.
    pub special: Vec<SpecialMapping>,
}

/// Memory behind shared mappings without a path, of all processes of a job.
#[derive(Debug, Default)]
pub struct SharedMemory {
    /// The objects.
    pub objects: Vec<SharedObject>,
    /// Their names as /proc shows them, and their inodes.
    pub places: Vec<(Vec<u8>, u64)>,
    /// Where System V shared memory is attached, by its inode.
    pub attachments: Vec<(u64, SysvAttachment)>,
    /// Content that was copied during the stop, of parts that several processes may have mapped.
    pub held: HashMap<SharedPart, Arc<Vec<u8>>>,
    of_inode: HashMap<((u32, u32), u64, bool), u32>,
}

/// A part of memory that processes share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedPart {
    memory: SharedPlace,
    offset: u64,
    bytes: u64,
}

/// Which memory it is a part of. A device and an inode alone do not tell: a System V segment has its id for an inode, and two
/// subvolumes of btrfs may show files by the same numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SharedPlace {
    Object(u32),
    File { path: Vec<u8>, device: (u32, u32), inode: u64 },
}

impl SharedPart {
    /// What `draft` shows; none if it is private.
    pub fn of(draft: &Draft) -> Option<SharedPart> {
        let Mapping { device, inode, offset, .. } = draft.mapping;
        let memory = match &draft.backing {
            Backing::SharedObject { object, .. } => SharedPlace::Object(*object),
            Backing::SharedFile { file, .. } => SharedPlace::File { path: file.path.clone(), device, inode },
            Backing::Anonymous | Backing::PrivateFile(_) => return None,
        };
        Some(SharedPart { memory, offset, bytes: draft.mapping.bytes() })
    }
}

impl SharedMemory {
    /// The object that `mapping` is a part of, which it may be the first to show.
    fn object(&mut self, pid: i32, mapping: &Mapping) -> u32 {
        // Its inode is its id, which is not unique among those of other memory.
        let is_sysv = mapping.name.starts_with(MAPPED_NAME);
        if is_sysv {
            let address = mapping.start.wrapping_sub(mapping.offset);
            let attachment = SysvAttachment { pid, address, read_only: !mapping.has(b"mw") };
            self.attachments.push((mapping.inode, attachment));
        }
        let object = *self.of_inode.entry((mapping.device, mapping.inode, is_sysv)).or_insert_with(|| {
            self.objects.push(SharedObject { name: object_name(&mapping.name), ..SharedObject::default() });
            self.places.push((mapping.name.clone(), mapping.inode));
            self.objects.len() as u32 - 1
        });
        let shown = &mut self.objects[object as usize];
        shown.bytes = (mapping.offset + mapping.bytes()).max(shown.bytes);
        shown.huge_page_bytes = huge_page_bytes(mapping);
        object
    }
}

/// Notes which private mappings show a file without a path that a job can still write, because it has that open (`opened` gives
/// names and inodes) or mapped: what is written to it shows in them.
pub fn connect_private_views<'a>(
    drafts: impl Iterator<Item = (i32, &'a mut Draft)>,
    opened: &[(&[u8], u64)],
    memory: &mut SharedMemory,
) {
    let drafts: Vec<(i32, &mut Draft)> = drafts.collect();
    let shared = drafts.iter().filter_map(|(_, draft)| match &draft.backing {
        Backing::SharedObject { object, .. } => Some((draft.mapping.clone(), *object)),
        _ => None,
    });
    let shared: Vec<(Mapping, u32)> = shared.collect();
    for (pid, draft) in drafts {
        let mapping = &draft.mapping;
        let is_view = matches!(&draft.backing, Backing::PrivateFile(file) if file.deleted);
        if !is_view || mapping.name.starts_with(MAPPED_NAME) {
            continue;
        }
        let covers = |other: &Mapping| {
            let is_same = (other.device, other.inode, &other.name) == (mapping.device, mapping.inode, &mapping.name);
            is_same
                && other.offset <= mapping.offset
                && other.offset + other.bytes() >= mapping.offset + mapping.bytes()
        };
        draft.follows = match opened.contains(&(mapping.name.as_slice(), mapping.inode)) {
            true => Some(memory.object(pid, mapping)),
            false => shared.iter().find(|(other, _)| covers(other)).map(|(_, object)| *object),
        };
    }
}

/// Sorts `mappings` of process `pid`; what they share with those of others is in `memory`.
pub fn sort(pid: i32, mappings: Vec<Mapping>, memory: &mut SharedMemory) -> Result<AddressSpace> {
    let mut space = AddressSpace::default();
    let is_ours = task::users(pid).is_ok_and(|users| users == [geteuid().as_raw(); 4]);
    for mut mapping in mappings {
        if matches!(mapping.name.as_slice(), b"[vdso]" | b"[vvar]" | b"[vvar_vclock]") {
            space.special.push(special(pid, &mapping)?);
            continue;
        }
        refuse_unsupported(&mapping)?;
        if let Some(name) = other_name(&mapping) {
            mapping.name = name;
        }
        let stat = stat(&mapping).filter(|stat| is_ours || is_mapped_file(pid, &mapping, &stat.stamp));
        let backing = backing(pid, &mapping, stat.as_ref(), memory);
        let is_sparse = stat.as_ref().is_some_and(|stat| stat.is_sparse);
        let file = stat.map(|stat| stat.stamp);
        space.drafts.push(Draft { advice: advice(&mapping), file, is_sparse, ..Draft::new(mapping, backing) });
    }
    Ok(space)
}

fn special(pid: i32, mapping: &Mapping) -> Result<SpecialMapping> {
    let content = if mapping.name == b"[vdso]" {
        let mut content = vec![0; mapping.bytes() as usize];
        read_memory(pid, mapping.start, &mut content)?;
        Some(ByteBuf::from(content))
    } else {
        None
    };
    let digest = content.as_ref().map(|content| page_digest::sha1(content));
    let name = String::from_utf8_lossy(&mapping.name).into_owned();
    Ok(SpecialMapping { name, address: mapping.start, bytes: mapping.bytes(), digest, content })
}

fn refuse_unsupported(mapping: &Mapping) -> Result<()> {
    let refuse = |what: &str, advice: &str| {
        let name = String::from_utf8_lossy(&mapping.name);
        let place =
            format!("the mapping at {:#x} ({})", mapping.start, if name.is_empty() { "anonymous" } else { &name });
        Err(Error::unsupported(place, what, advice))
    };
    if mapping.has(b"ht") && !mapping.is_of_huge_pages() && !mapping.name.starts_with(MEMFD) {
        let what = "files and System V segments of huge pages (hugetlbfs) are not captured yet";
        return refuse(what, "use anonymous memory of huge pages (MAP_HUGETLB), or transparent ones");
    }
    if mapping.has(b"pf") || mapping.has(b"io") || mapping.has(b"mm") && mapping.name != io_uring::NAME {
        return refuse("it maps a device", "unmap it before the checkpoint");
    }
    if mapping.name.starts_with(b"/[aio]") {
        // No file of /proc and no call counts them; io_destroy waits for them, and their results go with it.
        let what = "the kernel does not tell whether requests of asynchronous I/O (io_setup) are under way";
        return refuse(what, "destroy the context before the checkpoint, or have the program use io_uring");
    }
    if mapping.name.starts_with(b"anon_inode:") && mapping.name != io_uring::NAME
        || mapping.name.starts_with(b"[uprobes]")
    {
        return refuse("this kind of mapping is not captured", "unmap it before the checkpoint");
    }
    if mapping.protection_key != 0 {
        return refuse("memory protection keys are not captured yet", "do not use pkey_mprotect");
    }
    if mapping.has(b"ss") {
        return refuse("shadow stacks are not captured yet", "start the program without them");
    }
    if mapping.has(b"um") || mapping.has(b"ui") {
        return refuse("the program handles its page faults by a userfaultfd", "unregister it before the checkpoint");
    }
    Ok(())
}

/// What the path of a mapping says of its file.
struct Stat {
    stamp: FileStamp,
    mode: u32,
    is_sparse: bool,
}

fn stat(mapping: &Mapping) -> Option<Stat> {
    if !mapping.name.starts_with(b"/") || mapping.name.ends_with(DELETED) {
        return None;
    }
    let metadata = std::fs::metadata(Path::new(OsStr::from_bytes(&mapping.name))).ok()?;
    // A path that leads to another file by now is as good as deleted. Devices are not compared: stat and maps
    // number those of some file systems (btrfs, overlayfs) differently.
    (metadata.ino() == mapping.inode).then(|| {
        let stamp = FileStamp::of(&metadata);
        let is_sparse = metadata.blocks().saturating_mul(BLOCK_BYTES) < metadata.size();
        Stat { stamp, mode: metadata.mode() & 0o7777, is_sparse }
    })
}

/// Whether the file of `stamp`, which the path of a mapping leads to, is the one that process `pid` has mapped: a process of
/// another user may have one of the same inode on another file system.
fn is_mapped_file(pid: i32, mapping: &Mapping, stamp: &FileStamp) -> bool {
    match std::fs::metadata(mapped_file(pid, mapping)) {
        Ok(mapped) => (mapped.dev(), mapped.ino()) == (stamp.device, stamp.inode),
        Err(_) => (major(stamp.device) as u32, minor(stamp.device) as u32) == mapping.device,
    }
}

/// Where the file of a mapping is to be had, whatever its path leads to. Root may go there.
pub fn mapped_file(pid: i32, mapping: &Mapping) -> String {
    format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end)
}

fn backing(pid: i32, mapping: &Mapping, stat: Option<&Stat>, memory: &mut SharedMemory) -> Backing {
    let is_nameless = mapping.name == b"/dev/zero" || mapping.is_of_huge_pages();
    let is_file = mapping.name.starts_with(b"/") && mapping.inode != 0 && !is_nameless;
    if !mapping.shared && !is_file {
        return Backing::Anonymous;
    }
    if mapping.shared && stat.is_none() {
        return Backing::SharedObject { object: memory.object(pid, mapping), offset: mapping.offset };
    }
    let file = FileIdentity {
        path: mapping.name.strip_suffix(DELETED).unwrap_or(&mapping.name).to_vec(),
        deleted: stat.is_none(),
        device: mapping.device,
        inode: mapping.inode,
        size: stat.map_or(0, |stat| stat.stamp.bytes),
        mode: stat.map_or(0, |stat| stat.mode),
        offset: mapping.offset,
        times: stat.filter(|stat| stat.stamp.is_settled()).map(|stat| stat.stamp.times()),
    };
    if mapping.shared {
        // "sh" and "mw": the file was open for writing when it was mapped.
        Backing::SharedFile { file, may_write: mapping.has(b"sh") && mapping.has(b"mw") }
    } else {
        Backing::PrivateFile(file)
    }
}

/// `/memfd:NAME (deleted)` gives NAME; `/dev/zero (deleted)` and other deleted files give nothing.
fn object_name(name: &[u8]) -> Vec<u8> {
    let name = name.strip_suffix(DELETED).unwrap_or(name);
    name.strip_prefix(MEMFD).map(<[u8]>::to_vec).unwrap_or_default()
}

/// Bytes of a page of `mapping`, if huge ones were asked for; else 0.
fn huge_page_bytes(mapping: &Mapping) -> u64 {
    if mapping.has(b"ht") { mapping.page_bytes } else { 0 }
}

fn advice(mapping: &Mapping) -> Advice {
    Advice {
        grows_down: mapping.has(b"gd"),
        no_reserve: mapping.has(b"nr"),
        accounted: mapping.has(b"ac"),
        locked: mapping.has(b"lo"),
        locked_on_fault: mapping.has(b"lf"),
        dont_fork: mapping.has(b"dc"),
        wipe_on_fork: mapping.has(b"wf"),
        dont_dump: mapping.has(b"dd"),
        huge_page: mapping.has(b"hg"),
        huge_page_bytes: huge_page_bytes(mapping),
        no_huge_page: mapping.has(b"nh"),
        mergeable: mapping.has(b"mg"),
        sequential: mapping.has(b"sr"),
        random: mapping.has(b"rr"),
        droppable: mapping.has(b"dp"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(name: &[u8], inode: u64, start: u64, offset: u64) -> Mapping {
        Mapping {
            start,
            end: start + 0x2000,
            shared: true,
            offset,
            inode,
            name: name.to_vec(),
            flags: vec![*b"sh", *b"mw"],
            ..Mapping::default()
        }
    }

    #[test]
    fn two_mappings_of_one_memory_file_share_an_object() {
        let mappings = vec![
            shared(b"/memfd:heap (deleted)", 7, 0x10000, 0),
            shared(b"/memfd:heap (deleted)", 7, 0x20000, 0x1000),
            shared(b"/dev/zero (deleted)", 8, 0x30000, 0),
        ];
        let mut memory = SharedMemory::default();
        let space = sort(std::process::id() as i32, mappings, &mut memory).unwrap();
        assert_eq!(
            memory.objects,
            [
                SharedObject { name: b"heap".to_vec(), bytes: 0x3000, ..SharedObject::default() },
                SharedObject { bytes: 0x2000, ..SharedObject::default() },
            ]
        );
        assert_eq!(space.drafts[1].backing, Backing::SharedObject { object: 0, offset: 0x1000 });
    }

    #[test]
    fn a_shared_part_is_known_by_its_memory_and_not_by_an_inode_alone() {
        let mut memory = SharedMemory::default();
        let mappings = vec![
            shared(b"/SYSV00000000 (deleted)", 7, 0x10000, 0),
            shared(b"/dev/zero (deleted)", 7, 0x20000, 0),
            shared(b"/dev/zero (deleted)", 7, 0x30000, 0),
        ];
        let mut drafts = sort(std::process::id() as i32, mappings, &mut memory).unwrap().drafts;
        // Two files that two subvolumes show by the same numbers.
        for path in [b"/one/file", b"/two/file"] {
            let Draft { mapping, backing, .. } = drafts[1].clone();
            assert!(matches!(backing, Backing::SharedObject { .. }));
            let (device, inode, offset) = (mapping.device, mapping.inode, mapping.offset);
            let file = FileIdentity {
                path: path.to_vec(),
                deleted: false,
                device,
                inode,
                size: 0x2000,
                mode: 0o600,
                offset,
                times: None,
            };
            let backing = Backing::SharedFile { file, may_write: true };
            drafts.push(Draft::new(mapping, backing));
        }
        let parts: Vec<_> = drafts.iter().map(SharedPart::of).collect();
        assert_eq!(parts[1], parts[2]);
        let different: std::collections::HashSet<_> = parts.iter().flatten().collect();
        assert_eq!(different.len(), 4);
    }

    #[test]
    fn huge_pages_and_devices_are_refused_with_their_address() {
        for flag in [*b"ht", *b"io"] {
            let mut mapping = shared(b"/dev/x", 1, 0x7000, 0);
            mapping.flags = vec![flag];
            let message = sort(1, vec![mapping], &mut SharedMemory::default()).unwrap_err().to_string();
            assert!(message.contains("0x7000") && message.contains("/dev/x"), "{message}");
        }
    }
}
