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

use super::RestoreOptions;
use super::host::Machine;
use crate::error::Result;
use crate::image::JobImage;

/// Checks that checkpoint `id` can be rebuilt here and now.
pub fn check(id: u64, job: &JobImage, machine: &Machine, options: &RestoreOptions) -> Result<()> {
    shape::check(id, job)?;
    machine::check(job, machine, options.force)?;
    for process in &job.processes {
        kernel_limits::check(process)?;
        identity::check(process, &options.place, &job.host, &machine.host)?;
    }
    job.lost_leaders.iter().try_for_each(|leader| identity::check_free(leader.pid))?;
    super::guards::check(job)?;
    files::check(job, options.force)?;
    super::fifos::check(job)?;
    super::sysv::check(job)?;
    job.processes.iter().try_for_each(|process| super::locks::check(process, &job.objects))
}
