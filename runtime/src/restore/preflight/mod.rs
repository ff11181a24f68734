//! Everything that can be refused before anything is built.
//!
//! A restart that fails half-way costs time and nerves, and one that succeeds on the wrong host or over the wrong
//! files is corruption. So the image is compared with this host, this user, the process table and the files it
//! names first. Nothing here changes anything.

mod files;
mod identity;
mod kernel_limits;
mod machine;
pub mod shape;

use super::host::Machine;
use super::huge_pages::{self, Pool};
use super::options::RestoreOptions;
use crate::error::Result;
use crate::image::JobImage;

/// Checks that checkpoint `id`, whose programs are still there, could be rebuilt on this machine when they have ended.
///
/// Only what can be known before that: not their ids, which are in use, and not what another machine may lack.
pub fn check_before_seal(id: u64, job: &JobImage) -> Result<()> {
    shape::check(id, job)?;
    job.processes.iter().try_for_each(kernel_limits::check)?;
    super::guards::check(job)?;
    huge_pages::check(job, Pool::All)?;
    // What has changed meanwhile can be accepted by --force.
    files::check(job, true)?;
    super::fifos::check(job)
}

/// Checks that checkpoint `id` can be rebuilt here and now.
pub fn check(id: u64, job: &JobImage, machine: &Machine, options: &RestoreOptions) -> Result<()> {
    shape::check(id, job)?;
    machine::check(job, machine, options.force)?;
    super::first_process::check(job)?;
    super::filters::check(job, &machine.host)?;
    for process in &job.processes {
        kernel_limits::check(process)?;
        identity::check(process, (&options.place, options.ids), &job.host, &machine.host)?;
    }
    job.lost_leaders.iter().try_for_each(|leader| identity::check_free(leader.pid))?;
    super::guards::check(job)?;
    huge_pages::check(job, Pool::Free)?;
    files::check(job, options.force)?;
    super::fifos::check(job)?;
    super::sysv::check(job)?;
    job.processes.iter().try_for_each(|process| super::locks::check(process, &job.objects))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{FileKind, OpenFile};
    use crate::restore::host::Machine;
    use crate::restore::sample::{self, ScratchDir};

    #[test]
    fn what_a_restart_would_refuse_is_refused_before_the_seal() {
        let dir = ScratchDir::new();
        let path = dir.file("input", b"12345");
        let bytes = path.as_os_str().as_encoded_bytes().to_vec();
        let mut job = sample::job(&Machine::this().unwrap());
        let kind = FileKind::Regular { path: bytes, device: (0, 0), inode: 0, size: 5, offset: 0, modified_ns: 0 };
        job.objects.files.push(OpenFile { kind, flags: libc::O_RDONLY });
        check_before_seal(1, &job).unwrap();
        std::fs::remove_file(&path).unwrap();
        let message = check_before_seal(1, &job).unwrap_err().to_string();
        assert!(message.contains("input is missing; it had 5 bytes at the checkpoint"), "{message}");
    }
}
