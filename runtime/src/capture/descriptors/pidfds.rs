//! Descriptors of processes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::entry::{Entry, refused};
use crate::error::Result;
use crate::image::FileKind;
use crate::proc::fdinfo::FdInfo;
use crate::proc::task;

/// `struct pidfd_info` as far as it is needed; the kernel goes by the number of the request, which has its size.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// `_IOWR(0xff, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b;
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// Whether a descriptor leads to a process. What kind of inode it has differs from kernel to kernel.
pub fn is_pidfd(info: &FdInfo) -> bool {
    info.target == b"anon_inode:[pidfd]" || info.target.starts_with(b"pidfd:")
}

/// What it is; `pids` are the processes of the job.
pub fn kind(entry: Entry<'_>, pids: &[i32]) -> Result<FileKind> {
    let info = entry.info;
    // PIDFD_THREAD.
    let thread = info.flags & libc::O_EXCL != 0;
    match info.field("Pid").and_then(|pid| pid.parse::<i32>().ok()) {
        Some(pid) if pids.contains(&pid) || is_child_that_has_ended(pid, pids) => {
            Ok(FileKind::PidFd { pid, status: 0, thread })
        }
        Some(-1) => {
            let handle = entry.fetch()?;
            Ok(FileKind::PidFd { pid: 0, status: status(handle.as_fd()), thread })
        }
        Some(tid) if thread && pids.iter().any(|&pid| task::threads(pid).is_ok_and(|all| all.contains(&tid))) => {
            Err(refused(info, "descriptors of threads other than the main one are not captured yet", "close it"))
        }
        Some(pid) if pid > 0 => {
            let why = format!("it leads to process {pid}, which is not in the job");
            Err(refused(info, &why, "close it before the checkpoint"))
        }
        _ => Err(refused(info, "which process it leads to cannot be known here", "close it before the checkpoint")),
    }
}

/// Whether it has ended, and one of `pids` has not waited for it yet.
pub fn is_child_that_has_ended(pid: i32, pids: &[i32]) -> bool {
    task::stat_fields(pid, "stat").is_ok_and(|stat| {
        stat.first().is_some_and(|state| state == "Z") && pids.contains(&(task::stat_number(&stat, 4) as i32))
    })
}

/// How the process has ended, as `waitpid` has said; 0 where the kernel does not tell.
fn status(pidfd: BorrowedFd<'_>) -> i32 {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the request reads and writes one `PidfdInfo`, whose size is part of its number.
    let told = Errno::result(unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) });
    if told.is_ok() && info.mask & PIDFD_INFO_EXIT != 0 { info.exit_code } else { 0 }
}
