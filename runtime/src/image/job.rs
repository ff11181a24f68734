//! All of a checkpoint that can be restarted: processes, and what they share.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::{
    Births, CapturedFile, Directory, Family, LostLeader, MessageQueue, NetworkInterface, OpenFile, Pending,
    PipeContent, ProcessImage, PseudoTerminal, Region, SharedObject, SignalDriven, SysvMemory, SysvQueue,
    SysvSemaphores, UnlinkedFile,
};

/// Processes at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobImage {
    /// That of [`JobImage::set_version`].
    pub version: u32,
    /// The host it was captured on.
    pub host: Host,
    /// What their descriptors and shared mappings lead to.
    pub objects: Objects,
    /// The processes, each before its children. There is at least one: the first, which all others descend from, or did.
    pub processes: Vec<ProcessImage>,
    /// Leaders of sessions and process groups that have gone. What leads a session or group and is neither here nor among the
    /// processes is not the job's.
    #[serde(default)]
    pub lost_leaders: Vec<LostLeader>,
    /// What all processes of the job have and nobody else; 0 for none.
    #[serde(default)]
    pub mark: u64,
}

impl JobImage {
    /// The first process: the one that the restarter has as its child.
    ///
    /// # Panics
    /// When there is none, which no image that was decoded has.
    pub fn root(&self) -> &ProcessImage {
        &self.processes[0]
    }

    /// Regions of all processes that pages are missing of, which are stored behind the seal.
    pub fn pending(&self) -> impl Iterator<Item = (&Region, &Pending)> {
        let regions = self.processes.iter().flat_map(|process| &process.regions);
        regions.filter_map(|region| Some((region, region.pending.as_ref()?)))
    }

    /// Gives it the lowest version whose readers understand all that is in it.
    pub fn set_version(&mut self) {
        let has_filters = self.processes.iter().any(|process| !process.filters.is_empty());
        let is_pending = self.pending().next().is_some();
        self.version = match (has_filters, is_pending) {
            (true, _) => super::FILTERS_VERSION,
            (false, true) => super::PENDING_VERSION,
            (false, false) => super::IMAGE_VERSION,
        };
    }

    /// Who makes whom at a restart; see [`Births::of`].
    ///
    /// # Errors
    /// The index of a process for which there is no way.
    pub fn births(&self, first_leads: bool) -> Result<Births, usize> {
        let all: Vec<(i32, &Family)> = self.processes.iter().map(|process| (process.pid, &process.family)).collect();
        Births::of(&all, &self.lost_leaders, first_leads)
    }

    /// The ids of all threads, of processes that have ended, and of leaders that have gone.
    pub fn ids(&self) -> impl Iterator<Item = i32> {
        let threads = self.processes.iter().flat_map(|process| &process.threads).map(|thread| thread.tid);
        let ended = self.processes.iter().flat_map(|process| &process.family.ended_children).map(|ended| ended.pid);
        let gone = self.lost_leaders.iter().filter(|leader| leader.child_of.is_none());
        threads.chain(ended).chain(gone.map(|leader| leader.pid))
    }
}

/// What processes share. Records of processes name it by its index here.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Objects {
    /// Open file descriptions.
    pub files: Vec<OpenFile>,
    /// Pipes with both ends in the job.
    pub pipes: Vec<PipeContent>,
    /// Files that signal somebody when they become ready.
    pub signal_driven: Vec<SignalDriven>,
    /// Pseudo-terminals whose master is in the job.
    pub pseudo_terminals: Vec<PseudoTerminal>,
    /// Memory objects behind shared mappings that no path leads to.
    pub memory: Vec<SharedObject>,
    /// Open files that no path leads to.
    pub unlinked_files: Vec<UnlinkedFile>,
    /// POSIX message queues.
    #[serde(default)]
    pub message_queues: Vec<MessageQueue>,
    /// System V shared memory.
    #[serde(default)]
    pub sysv_memory: Vec<SysvMemory>,
    /// System V semaphores.
    #[serde(default)]
    pub sysv_semaphores: Vec<SysvSemaphores>,
    /// System V message queues.
    #[serde(default)]
    pub sysv_queues: Vec<SysvQueue>,
    /// Files whose content is in the checkpoint, each path once.
    pub captured_files: Vec<CapturedFile>,
    /// Directories that `captured_files` has all of, in bytes of a path each: what else is there was not, at the checkpoint.
    pub captured_trees: Vec<ByteBuf>,
    /// Directories that the paths of the job lead through or to, parents before their children.
    #[serde(default)]
    pub directories: Vec<Directory>,
}

/// The host of a capture: what a restart compares before it builds anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel_release: String,
    /// Name of the processor, for people.
    pub processor: String,
    /// State components that the kernel enables (XCR0).
    pub xcr0: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Version of the ckpt that captured.
    pub ckpt_version: String,
    /// The user namespace of the job: which of its user ids are which outside (`/proc/self/uid_map`: first id inside, first id
    /// outside, how many). Empty: an older ckpt has not looked.
    #[serde(default)]
    pub user_map: Vec<[u32; 3]>,
    /// How many seccomp filters the job began under, its container's. `None`: nothing says so.
    #[serde(default)]
    pub filters: Option<u32>,
    /// Whether it began under no_new_privs.
    #[serde(default)]
    pub no_new_privs: bool,
    /// The network interfaces of its network namespace. `None`: an older ckpt has not looked, or the kernel
    /// has not told.
    #[serde(default)]
    pub interfaces: Option<Vec<NetworkInterface>>,
}

impl Host {
    /// Whether user ids and capabilities are worth less there than on the machine itself.
    pub fn is_in_user_namespace(&self) -> bool {
        !matches!(self.user_map[..], [] | [[0, 0, u32::MAX]])
    }

    /// Whether user `id` is the same one outside.
    pub fn is_same_outside(&self, id: u32) -> bool {
        let has = |&[inside, outside, count]: &[u32; 3]| {
            inside == outside && id.checked_sub(inside).is_some_and(|place| place < count)
        };
        self.user_map.iter().any(has)
    }
}
