//! What the children tell the restarter: which step of which object gave which error, in which process.

use nix::errno::Errno;

use crate::error::Error;
use crate::image::{Fifo, FileKind, JobImage, path_of};
use crate::restore::ascending::{ENV_SEARCH, advice};
use crate::restore::clone_call::clone_refused;
use crate::restore::paths::reopened_path;

/// Bytes of a report on the channel.
pub const REPORT_BYTES: usize = 20;

/// What a report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// All is in place.
    Done,
    /// It cannot go on.
    Failed,
    /// Something is missing that the program can do without.
    Warning,
    /// It waits for descriptors to be handed over.
    Ready,
}

/// What was being done; [`Report::error`] has the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    DescriptorLimit,
    Keep,
    Role,
    Control,
    Child,
    Turn,
    Adopting,
    Open,
    Number,
    Pipe,
    Deliver,
    Watch,
    WorkingDirectory,
    OomScore,
    NoNewPrivs,
    Tiles,
    SignalAction,
}

const STEPS: &[Step] = &[
    Step::DescriptorLimit,
    Step::Keep,
    Step::Role,
    Step::Control,
    Step::Child,
    Step::Turn,
    Step::Adopting,
    Step::Open,
    Step::Number,
    Step::Pipe,
    Step::Deliver,
    Step::Watch,
    Step::WorkingDirectory,
    Step::OomScore,
    Step::NoNewPrivs,
    Step::Tiles,
    Step::SignalAction,
];

/// A failure within the child.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    step: Step,
    index: u32,
    errno: Errno,
}

impl Failed {
    /// What the kernel said.
    pub fn errno(self) -> Errno {
        self.errno
    }
}

/// Says where an errno happened.
pub trait At<T> {
    /// The failure of step `step` on object `index`.
    fn at(self, step: Step, index: u32) -> Result<T, Failed>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: Step, index: u32) -> Result<T, Failed> {
        self.map_err(|errno| Failed { step, index, errno })
    }
}

/// One message of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it says.
    pub verdict: Verdict,
    /// Which process of the job it comes from.
    process: u32,
    step: Step,
    /// Of which process, file, descriptor or signal.
    index: u32,
    errno: i32,
}

impl Report {
    /// Everything is in place in `process`.
    pub fn done(process: usize) -> Report {
        Report { verdict: Verdict::Done, process: process as u32, step: Step::Keep, index: 0, errno: 0 }
    }

    /// The first process could not be made, with this id.
    pub fn turn_refused(id: i32, errno: Errno) -> Report {
        Report::failed(0, Failed { step: Step::Turn, index: id as u32, errno })
    }

    /// `process` waits for descriptors to be handed over.
    pub fn ready(process: usize) -> Report {
        Report { verdict: Verdict::Ready, ..Report::done(process) }
    }

    /// `process` cannot go on.
    pub fn failed(process: usize, failed: Failed) -> Report {
        let Failed { step, index, errno } = failed;
        Report { verdict: Verdict::Failed, process: process as u32, step, index, errno: errno as i32 }
    }

    /// `failed`, which is no reason to stop.
    pub fn warning(process: usize, failed: Failed) -> Report {
        Report { verdict: Verdict::Warning, ..Report::failed(process, failed) }
    }

    /// As on the channel.
    pub fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        bytes[..4].copy_from_slice(&(self.verdict as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(self.step as u32).to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.index.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.errno.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.process.to_ne_bytes());
        bytes
    }

    /// The opposite of [`Report::to_bytes`].
    pub fn from_bytes(bytes: [u8; REPORT_BYTES]) -> Option<Report> {
        let mut words = [0u32; 5];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_ne_bytes(chunk.try_into().ok()?);
        }
        let verdict = match words[0] {
            0 => Verdict::Done,
            1 => Verdict::Failed,
            2 => Verdict::Warning,
            3 => Verdict::Ready,
            _ => return None,
        };
        let step = *STEPS.get(words[1] as usize)?;
        Some(Report { verdict, process: words[4], step, index: words[2], errno: words[3] as i32 })
    }

    /// In words.
    pub fn error(self, job: &JobImage) -> Error {
        let errno = Errno::from_raw(self.errno);
        let image = job.processes.get(self.process as usize).unwrap_or(job.root());
        let file = job.objects.files.get(self.index as usize);
        if let (Step::Open, Some(path)) = (self.step, file.and_then(reopened_path)) {
            return Error::io("reopen", path_of(path), errno);
        }
        if let (Step::Pipe, Some(fifo)) = (self.step, named_pipe(job, self.index)) {
            let path = path_of(&fifo.path);
            if errno == Errno::EBUSY {
                let why = format!("another process has written into the named pipe {}", path.display());
                return Error::environment("restart", why, "let somebody read that, or end the process");
            }
            return Error::io("reopen", path, errno);
        }
        let (call, purpose) = match self.step {
            Step::DescriptorLimit => ("setrlimit", format!("room for {} descriptors", self.index)),
            Step::Keep => ("dup3", "keep what the rebuild needs".into()),
            Step::Child if matches!(errno, Errno::EEXIST | Errno::EPERM | Errno::EINVAL) => {
                return clone_refused(self.index as i32, errno);
            }
            Step::Child => ("clone3", format!("child {}", self.index)),
            Step::Turn => return out_of_reach(self.index as i32, errno),
            Step::Adopting => ("prctl", "PR_SET_CHILD_SUBREAPER".into()),
            Step::Role => ("setsid", format!("become {:?}", image.family.role(image.pid))),
            Step::Control => ("ioctl", format!("be controlled by terminal {} of the job's own", self.index)),
            Step::Open => ("open", file.map(|file| shown(&file.kind)).unwrap_or_default()),
            Step::Number => ("dup3", format!("descriptor {}", self.index)),
            Step::Pipe => ("pipe2", format!("pipe {} and its content", self.index)),
            Step::Deliver => ("sendmsg", format!("what lay unread in the socket that is file {}", self.index)),
            Step::Watch => ("epoll_ctl", format!("watch descriptor {}", self.index)),
            Step::WorkingDirectory => return Error::io("enter", path_of(&image.working_directory), errno),
            Step::OomScore => ("write", format!("oom_score_adj {}", image.oom_score_adj)),
            Step::NoNewPrivs => ("prctl", "PR_SET_NO_NEW_PRIVS".into()),
            Step::Tiles => ("arch_prctl", "permission to use AMX tiles".into()),
            Step::SignalAction => ("rt_sigaction", format!("action of signal {}", self.index)),
        };
        Error::RemoteCall { pid: image.pid, call, purpose, source: errno }
    }
}

/// Why the kernel does not give id `id` where it cannot be chosen.
fn out_of_reach(id: i32, errno: Errno) -> Error {
    let (why, advice) = match errno {
        Errno::ERANGE => (
            format!("the kernel has passed it, or as many processes as {ENV_SEARCH} allows were made on the way"),
            advice(),
        ),
        Errno::EAGAIN => (
            "no more processes may be made here, even if they end at once".to_owned(),
            "allow more processes (ulimit -u, the container's pids limit)",
        ),
        Errno::ENOTUNIQ => ("no free id is left before it for the process that makes it".to_owned(), advice()),
        errno => (errno.desc().to_owned(), advice()),
    };
    Error::ids_not_to_be_had(format!("give the rebuilt program its id {id}"), why, advice)
}

fn named_pipe(job: &JobImage, index: u32) -> Option<&Fifo> {
    job.objects.pipes.get(index as usize)?.fifo.as_ref()
}

fn shown(kind: &FileKind) -> String {
    match kind {
        FileKind::Standard { stream, was } => format!("stream {stream} (was {})", String::from_utf8_lossy(was)),
        FileKind::Unlinked { file, .. } => format!("file {file} of those without a path"),
        FileKind::TerminalMaster { terminal } => format!("the master of terminal {terminal} of the job's own"),
        FileKind::Terminal { terminal, .. } => format!("terminal {terminal} of the job's own"),
        FileKind::HungUpTerminal { was } => {
            format!("a terminal that was hung up (was {})", String::from_utf8_lossy(was))
        }
        FileKind::Pipe { pipe } => format!("an end of pipe {pipe}"),
        FileKind::Socket(_) => "a socket".into(),
        FileKind::EventFd { .. } => "an eventfd".into(),
        FileKind::TimerFd { .. } => "a timer".into(),
        FileKind::SignalFd { .. } => "a signalfd".into(),
        FileKind::Epoll { .. } => "an epoll instance".into(),
        FileKind::IoUring(_) => "an io_uring instance".into(),
        FileKind::PidFd { .. } => "a pidfd".into(),
        FileKind::MessageQueue { .. } => "a message queue".into(),
        FileKind::Inotify { .. } => "an inotify instance".into(),
        FileKind::Fanotify(_) => "a fanotify group".into(),
        FileKind::Regular { path, .. }
        | FileKind::Directory { path, .. }
        | FileKind::Device { path }
        | FileKind::Named { path, .. }
        | FileKind::OfProcess { path, .. } => path_of(path).display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_channel() {
        for &step in STEPS {
            let report = Report::failed(3, Failed { step, index: 7, errno: Errno::EMFILE });
            assert_eq!(Report::from_bytes(report.to_bytes()), Some(report));
        }
        assert_eq!(Report::from_bytes(Report::done(2).to_bytes()), Some(Report::done(2)));
        assert_eq!(Report::from_bytes([0xff; REPORT_BYTES]), None);
    }
}
