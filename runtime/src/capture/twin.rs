//! The twin: a copy-on-write clone that holds the program's memory still while the program runs on. Where nobody needs the
//! memory, a clone that shares it and costs next to nothing: what else there is to be asked is as still in that.
//!
//! The program clones itself inside the stub, and its clone does. The middle clone always shares the program's memory, so that only one
//! copy of the page tables is made and none is taken down; it ends at once and is reaped in the same stop, so the program has no
//! child that it did not make, and the twin belongs to the nearest subreaper. It never executes anything
//! but our calls in the stub, and only ever in the mode in which the stub ends by `exit_group`; the kernel kills
//! it with us. Its descriptor table is emptied, so that it keeps no pipe or socket of the program open.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::guest::Guest;
use crate::error::{Error, Result};
use crate::proc::oom;
use crate::ptrace::{CallSite, Options, Stopped, remote_call, remote_clone, wait_until_gone};

/// What a clone has of its program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A copy of its own.
    Copied,
    /// The program's. It writes to the scratch area alone.
    Shared,
}

/// A stopped copy of the program. Dropping it ends it.
#[derive(Debug)]
pub struct Twin {
    process: Expendable,
    site: CallSite,
}

/// A clone of ours that is killed when it is dropped.
#[derive(Debug)]
struct Expendable(Stopped);

impl Expendable {
    fn new(process: Stopped) -> Result<Expendable> {
        let process = Expendable(process);
        process.0.set_options(Options::EXPENDABLE)?;
        Ok(process)
    }
}

impl Drop for Expendable {
    fn drop(&mut self) {
        let tid = self.0.tid();
        // Both can only fail because the process is gone already.
        let _ = kill(Pid::from_raw(tid), Signal::SIGKILL);
        if let Err(error) = wait_until_gone(tid) {
            log::debug!("waiting for clone {tid}: {error}");
        }
    }
}

/// Has a clone of the program do `work`, which makes calls there: it shares the program's memory, and nothing else. It ends with that,
/// and is reaped. The kernel's refusal to make it is given as a value.
///
/// # Errors
/// Those of `work`, and when the program is gone.
pub fn in_clone<T>(
    guest: &mut Guest<'_>,
    work: impl FnOnce(&mut Stopped, &CallSite) -> Result<T>,
) -> Result<Result<T, Errno>> {
    let clone = match guest.clone_with_memory()? {
        Ok(clone) => clone,
        Err(errno) => return Ok(Err(errno)),
    };
    let mut clone = Expendable::new(clone)?;
    let pid = clone.0.tid();
    let done = work(&mut clone.0, &guest.expendable_site());
    drop(clone);
    guest.call("wait4", "reaping a clone", libc::SYS_wait4, [pid as u64, 0, libc::__WALL as u64, 0, 0, 0])?;
    done.map(Ok)
}

impl Twin {
    /// Clones the program of `guest`. `None` when the kernel refuses (memory, process limit): the caller then asks and reads
    /// the program itself while it stays stopped.
    pub fn create(guest: &mut Guest<'_>, memory: Memory) -> Result<Option<Twin>> {
        let site = guest.expendable_site();
        let flags = match memory {
            Memory::Copied => 0,
            Memory::Shared => libc::CLONE_VM as u64,
        };
        let twin = in_clone(guest, |middle, site| {
            match remote_clone(middle, site, libc::SYS_clone, [flags, 0, 0, 0, 0, 0])? {
                Ok(twin) => Expendable::new(twin).map(Ok),
                Err(errno) => Ok(Err(errno)),
            }
        })?;
        match twin.and_then(|twin| twin) {
            Ok(process) => {
                let mut twin = Twin { process, site };
                twin.keep_nothing_of_the_program()?;
                if memory == Memory::Copied {
                    oom::end_first(twin.pid());
                }
                Ok(Some(twin))
            }
            Err(errno) => {
                log::info!("the program cannot be cloned ({errno}): it stays stopped instead");
                Ok(None)
            }
        }
    }

    /// Empties the twin's descriptor table and takes it out of the program's session and process group: an
    /// ended twin that nobody has reaped yet would keep the program's id from being given to a restart.
    fn keep_nothing_of_the_program(&mut self) -> Result<()> {
        let all = [0, u64::from(u32::MAX), 0, 0, 0, 0];
        let calls = [("close_range", libc::SYS_close_range, all), ("setsid", libc::SYS_setsid, [0; 6])];
        for (call, number, arguments) in calls {
            let outcome = remote_call(&mut self.process.0, &self.site, number, arguments)?;
            outcome.result.map_err(|source| Error::RemoteCall {
                pid: self.pid(),
                call,
                purpose: "separating the twin from the program".to_owned(),
                source,
            })?;
        }
        Ok(())
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.process.0.tid()
    }

    /// The process and its call site, for calls that are answered alike by the program and its twin.
    pub fn caller(&mut self) -> (&mut Stopped, &CallSite) {
        (&mut self.process.0, &self.site)
    }
}
