//! System V objects of every kind: finding one that is there, and making one with its id.

use std::fs::{self, OpenOptions};

use nix::errno::Errno;
use nix::unistd::{getegid, geteuid};

use crate::error::{Error, Result};
use crate::image::{JobImage, SysvIdentity};
use crate::proc::sysvipc::{Kind, Row, rows};
use crate::restore::clocks;
use crate::restore::process::{Call, HalfBuilt};

const SETRESGID: Call = Call("setresgid", libc::SYS_setresgid);
const SETRESUID: Call = Call("setresuid", libc::SYS_setresuid);
/// Leaves an id as it is.
const SAME: u64 = u32::MAX as u64;
/// How often an object is made: somebody else may be given the id that was meant for it.
const ATTEMPTS: u32 = 5;

/// Objects that have been made. They are removed again, unless they are kept.
#[derive(Debug, Default)]
pub struct Made(Vec<(Kind, i32)>);

impl Made {
    /// They stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for &(kind, id) in &self.0 {
            if let Err(error) = remove(kind, id) {
                log::warn!("{} was made for the restart and stays: {error}", kind.shown(id));
            }
        }
    }
}

fn remove(kind: Kind, id: i32) -> nix::Result<()> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: removing takes no argument.
    let removed = unsafe {
        match kind {
            Kind::Memory => libc::shmctl(id, libc::IPC_RMID, nothing.cast()),
            Kind::Semaphores => libc::semctl(id, 0, libc::IPC_RMID),
            Kind::Queue => libc::msgctl(id, libc::IPC_RMID, nothing.cast()),
        }
    };
    Errno::result(removed).map(drop)
}

/// The object, if it is there still. `same` is a column of its that never changes.
///
/// # Errors
/// When it would have to be made and cannot be.
pub fn find(job: &JobImage, kind: Kind, wanted: &SysvIdentity, same: (&str, u64)) -> Result<Option<Row>> {
    let all = rows(kind)?;
    if let Some(row) = all.iter().find(|row| row.id == wanted.id) {
        let creator = (row.number("cuid") as u32, row.number("cgid") as u32);
        let is_it = clocks::is_boot_of(job)
            && (row.key(), creator) == (wanted.key, (wanted.creator_uid, wanted.creator_gid))
            && row.number(same.0) as u64 == same.1;
        return match is_it {
            true => Ok(Some(row.clone())),
            false => Err(in_use(kind, wanted.id, "another object has the id by now")),
        };
    }
    if let Some(other) = all.iter().find(|row| wanted.key != 0 && row.key() == wanted.key) {
        let why = format!("its key {:#x} is that of {} by now", wanted.key, other.id);
        return Err(in_use(kind, wanted.id, &why));
    }
    OpenOptions::new().write(true).open(next_id(kind)).map_err(|_| may_not_choose(kind, wanted.id))?;
    Ok(None)
}

/// Refuses an id that others have.
pub fn in_use(kind: Kind, id: i32, why: &str) -> Error {
    let advice =
        format!("end who uses it; `ipcs` lists it, `ipcrm --{}-id` removes it", kind.name().replace("msg", "queue"));
    let advice = advice.replace("--shm-id", "--shmem-id").replace("--sem-id", "--semaphore-id");
    Error::environment(format!("give the program its {}", kind.shown(id)), why, advice)
}

fn may_not_choose(kind: Kind, id: i32) -> Error {
    Error::environment(
        format!("make {} again", kind.shown(id)),
        "it is gone, and choosing an id needs CAP_CHECKPOINT_RESTORE",
        "restart as root or with that capability",
    )
}

fn next_id(kind: Kind) -> String {
    format!("/proc/sys/kernel/{}_next_id", kind.name())
}

/// Makes an object by a remote call of process `maker`, with its id and its creator.
pub fn make(
    processes: &mut [HalfBuilt],
    maker: usize,
    (kind, wanted): (Kind, &SysvIdentity),
    (call, arguments): (Call, &[u64]),
    made: &mut Made,
) -> Result<()> {
    let process = &mut processes[maker];
    let shown = kind.shown(wanted.id);
    let foreign = geteuid().is_root() && (wanted.creator_uid, wanted.creator_gid) != (0, getegid().as_raw());
    let ids = |process: &mut HalfBuilt, call: Call, id: u32| {
        process.call(0, call, &[SAME, u64::from(id), SAME], format_args!("the creator of {shown}")).map(drop)
    };
    if foreign {
        ids(process, SETRESGID, wanted.creator_gid)?;
        ids(process, SETRESUID, wanted.creator_uid)?;
    }
    let id = make_with_id(process, (kind, wanted.id), (call, arguments), made);
    if foreign {
        ids(process, SETRESUID, 0)?;
        ids(process, SETRESGID, getegid().as_raw())?;
    }
    id
}

fn make_with_id(
    process: &mut HalfBuilt,
    (kind, wanted): (Kind, i32),
    (call, arguments): (Call, &[u64]),
    made: &mut Made,
) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let path = next_id(kind);
        fs::write(&path, wanted.to_string()).map_err(|_| may_not_choose(kind, wanted))?;
        let id = process.call(0, call, arguments, format_args!("{}", kind.shown(wanted)))? as i32;
        if id == wanted {
            made.0.push((kind, id));
            return Ok(());
        }
        remove(kind, id).map_err(|source| Error::io("remove", kind.shown(id), source))?;
    }
    Err(in_use(kind, wanted, "others are given the ids that are meant for it"))
}

/// The place of process `pid`, or that of the first one.
pub fn place_of(processes: &[HalfBuilt], pid: i32) -> usize {
    processes.iter().position(|process| process.pid() == pid).unwrap_or(0)
}

/// The error of a call for an object.
pub fn failed(action: &'static str, kind: Kind, id: i32) -> impl Fn(Errno) -> Error {
    move |source| Error::io(action, kind.shown(id), source)
}
