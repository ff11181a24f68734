//! The descriptor table and the open file descriptions behind it.

use serde::{Deserialize, Serialize};

use super::{DirectoryRights, Fanotify, IoUring, Socket, Watch};

/// An entry of the descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// Index into `Objects::files`; two numbers with one index share offset and flags.
    pub file: u32,
    /// FD_CLOEXEC.
    pub close_on_exec: bool,
}

/// An open file description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// What it is.
    pub kind: FileKind,
    /// Access mode and status flags (`O_ACCMODE`, `O_APPEND`, `O_NONBLOCK` ...), without `O_CLOEXEC`.
    pub flags: i32,
}

impl OpenFile {
    /// Whether it could write.
    pub fn is_writable(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY && !self.is_path_only()
    }

    /// Whether a restart makes it when all processes are there, and hands it to them in one message: no more of these can be restored
    /// than that can have ([`crate::net::FILES_MAX`]).
    pub fn is_handed_over(&self) -> bool {
        use FileKind::{Fanotify, Inotify, MessageQueue, OfProcess, PidFd};
        matches!(self.kind, PidFd { .. } | OfProcess { .. } | Inotify { .. } | Fanotify(_) | MessageQueue { .. })
    }

    /// Whether it only names a place (`O_PATH`).
    pub fn is_path_only(&self) -> bool {
        self.flags & libc::O_PATH != 0
    }
}

/// What an open file description leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    Regular {
        /// Its path.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// Device (major, minor).
        device: (u32, u32),
        /// Inode number.
        inode: u64,
        /// Size at the checkpoint, bytes.
        size: u64,
        /// Offset of the next read or write.
        offset: u64,
        /// Last change of the content, ns since the epoch.
        modified_ns: i64,
    },
    /// A regular file that no path leads to.
    Unlinked {
        /// Index into `Objects::unlinked_files`.
        file: u32,
        /// Offset of the next read or write.
        offset: u64,
    },
    /// A directory.
    Directory {
        /// Its path.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// Position in it, as `lseek` gives it.
        offset: u64,
        /// Set if it had been removed: that path leads nowhere.
        #[serde(default)]
        removed: Option<DirectoryRights>,
    },
    /// A symbolic link, socket, named pipe or block device itself, opened as a path alone (O_PATH).
    Named {
        /// Its path.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// The kind of file, as in `st_mode` (S_IFMT).
        format: u32,
        /// Where a symbolic link leads to.
        #[serde(default, with = "serde_bytes")]
        target: Vec<u8>,
    },
    /// A memory device such as /dev/null or /dev/urandom.
    Device {
        /// Its path.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
    },
    /// A terminal, pipe or socket that leads outside the job: becomes the restarter's own 0, 1 or 2.
    Standard {
        /// 0, 1 or 2.
        stream: i32,
        /// What it was, for people: `/dev/pts/3`, `pipe:[123]`, `socket:[77]`.
        #[serde(with = "serde_bytes")]
        was: Vec<u8>,
    },
    /// The master of a pseudo-terminal.
    TerminalMaster {
        /// Index into `Objects::pseudo_terminals`.
        terminal: u32,
    },
    /// A pseudo-terminal whose master is in the job.
    Terminal {
        /// Index into `Objects::pseudo_terminals`.
        terminal: u32,
        /// It was opened as /dev/tty.
        own: bool,
    },
    /// A pseudo-terminal whose master has been closed, or that has been taken away: there is nothing to read from it.
    HungUpTerminal {
        /// What it was, for people.
        #[serde(with = "serde_bytes")]
        was: Vec<u8>,
    },
    /// An end of a pipe within the job.
    Pipe {
        /// Index into `Objects::pipes`.
        pipe: u32,
    },
    /// A socket.
    Socket(Box<Socket>),
    /// An eventfd.
    EventFd {
        /// Its counter.
        count: u64,
        /// EFD_SEMAPHORE.
        semaphore: bool,
    },
    /// A timer of `timerfd_create`.
    TimerFd {
        /// `CLOCK_*`.
        clock: i32,
        /// `TFD_TIMER_*` flags that it was set with.
        settings: i32,
        /// Time to the next expiry, ns; 0 = not running.
        left_ns: u64,
        /// Period, ns; 0 = once.
        interval_ns: u64,
        /// Expiries that were not read yet.
        ticks: u64,
    },
    /// A descriptor of `signalfd`. What is queued for it is queued for the program.
    SignalFd {
        /// The signals; bit 0 is signal 1.
        mask: u64,
    },
    /// An epoll instance.
    Epoll {
        /// What it watches.
        targets: Vec<EpollTarget>,
    },
    /// An io_uring instance without requests under way.
    IoUring(IoUring),
    /// A process of the job, or one that has ended.
    PidFd {
        /// Its pid; 0: it has been waited for.
        pid: i32,
        /// What `waitpid` said then, if the kernel tells.
        status: i32,
        /// Whether it means the main thread alone (PIDFD_THREAD).
        thread: bool,
    },
    /// What /proc has of a process: a file or directory below its own.
    OfProcess {
        /// The process; 0: it has ended.
        pid: i32,
        /// When it began, clock ticks since the boot, if it is none of the job; else 0.
        begun: u64,
        /// Its path.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// Whether it is a directory.
        directory: bool,
        /// Offset of the next read or write.
        offset: u64,
    },
    /// A POSIX message queue.
    MessageQueue {
        /// Index into `Objects::message_queues`.
        queue: u32,
    },
    /// An inotify instance without unread events.
    Inotify {
        /// Its watches, by number.
        watches: Vec<Watch>,
    },
    /// A fanotify group without unread events.
    Fanotify(Fanotify),
}

/// A descriptor that an epoll instance watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollTarget {
    /// Its number.
    pub number: i32,
    /// `EPOLL*` events.
    pub events: u32,
    /// The user's data.
    pub data: u64,
    /// Index into `Objects::files`, if the number has been closed or leads to another file since.
    #[serde(default)]
    pub file: Option<u32>,
}

/// An open file description that signals somebody when it becomes ready (O_ASYNC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalDriven {
    /// Index into `Objects::files`.
    pub file: u32,
    /// `F_OWNER_*`.
    pub owner_kind: i32,
    /// The thread, process or group that is signalled; 0 for none.
    pub owner: i32,
    /// The signal; 0 for SIGIO without more.
    pub signal: i32,
}

/// A pipe within the job, or an end of one that led outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeContent {
    /// Capacity, bytes.
    pub capacity: u32,
    /// Bytes that were written and not yet read.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// How `content` divides, where some of it are packets; else empty.
    #[serde(default)]
    pub pieces: Vec<PipePiece>,
    /// Whether a read end was open.
    pub has_reader: bool,
    /// Whether a write end was open.
    pub has_writer: bool,
    /// Its name, if it has one (`mkfifo`).
    #[serde(default)]
    pub fifo: Option<Fifo>,
    /// Whether its other end was in a process outside the job, and is lost.
    #[serde(default)]
    pub outside: bool,
}

/// A part of what lies in a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipePiece {
    /// How long it is.
    pub bytes: u32,
    /// Whether it is a packet (O_DIRECT), of which one read takes no more than this one.
    pub packet: bool,
}

/// The name of a pipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fifo {
    /// Its path.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// And group.
    pub gid: u32,
    /// Whether nobody has written since its readers opened it: to them it has not come to its end.
    pub unwritten: bool,
}
