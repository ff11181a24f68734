//! Semaphores: made, and each set to its value by the process that had changed it last.

use nix::errno::Errno;

use super::super::process::{Call, HalfBuilt};
use super::objects::{Made, failed, find, make as make_object, place_of};
use crate::error::Result;
use crate::image::{JobImage, SysvSemaphores};
use crate::proc::sysvipc::Kind;

const SEMCTL: Call = Call("semctl", libc::SYS_semctl);
const SEMGET: Call = Call("semget", libc::SYS_semget);
const SETVAL: u64 = 16;

/// Makes the sets that are gone, and puts back the values of all.
pub fn make(processes: &mut [HalfBuilt], job: &JobImage, made: &mut Made) -> Result<()> {
    for set in &job.objects.sysv_semaphores {
        let (identity, count) = (&set.identity, set.values.len() as u64);
        let is_new = find(job, Kind::Semaphores, identity, ("nsems", count))?.is_none();
        if is_new {
            let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
            let arguments = [identity.key as u32 as u64, count, flags as u64];
            let maker = place_of(processes, set.users.iter().copied().find(|&user| user != 0).unwrap_or(0));
            make_object(processes, maker, (Kind::Semaphores, identity), (SEMGET, &arguments), made)?;
        }
        for (number, (&value, &user)) in (0u64..).zip(set.values.iter().zip(&set.users)) {
            if is_new && value == 0 && user == 0 {
                continue; // as it is
            }
            let process = &mut processes[place_of(processes, user)];
            let purpose = format_args!("semaphore {number} of {}", identity.id);
            process.call(0, SEMCTL, &[identity.id as u64, number, SETVAL, u64::from(value)], purpose)?;
        }
        give_rights(set)?;
    }
    Ok(())
}

fn give_rights(set: &SysvSemaphores) -> Result<()> {
    let identity = &set.identity;
    // SAFETY: a semid_ds is integers, for which zero is a value.
    let mut about: libc::semid_ds = unsafe { std::mem::zeroed() };
    (about.sem_perm.uid, about.sem_perm.gid, about.sem_perm.mode) = (identity.uid, identity.gid, identity.mode as _);
    // SAFETY: the call reads one semid_ds.
    let set = unsafe { libc::semctl(identity.id, 0, libc::IPC_SET, &raw mut about) };
    Errno::result(set).map(drop).map_err(failed("set the rights of", Kind::Semaphores, identity.id))
}
