//! What a CUDA driver answers in a process of its own, which is a `ckpt devices`: a driver that has been asked leaves threads and
//! descriptors behind, and one that does not answer is not waited for.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::descriptor::{self, pidfd_open};
use crate::error::{Error, Result};
use crate::proc::sched;

/// The hidden command that asks.
pub const COMMAND: &str = "devices";
/// How long the driver may take to begin: seconds, where nothing else keeps it awake. Time that it waits for a CPU does not count,
/// nor a time in which the whole machine is paused.
const WITHIN: Duration = Duration::from_secs(60);
/// A wait of this length counts as no more, however much later it ends.
const SLICE: Duration = Duration::from_secs(1);

/// What `ckpt devices` prints of this driver with these options. The process sees all devices, and is one of this user and group,
/// if they are given: whoever has named the driver.
///
/// # Errors
/// When that cannot be asked, finds no driver, or does not answer.
pub fn ask<T: DeserializeOwned>(driver: &Path, owner: Option<(u32, u32)>, options: &[&str]) -> Result<T> {
    let failed = |source| Error::io("ask", driver, source);
    let mut option = OsString::from("--driver=");
    option.push(driver);
    let mut command = Command::new("/proc/self/exe");
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    let child = command
        .args([OsStr::new(COMMAND), &option])
        .args(options)
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let end = End::of(child).map_err(failed)?;
    serde_json::from_slice(&end.printed).map_err(|_| {
        Error::environment(
            format!("asking the CUDA driver {}", driver.display()),
            end.why(),
            "see whether nvidia-smi works on this host",
        )
    })
}

/// Whether process `pid` ends before its time is up.
fn ends_in_time(pidfd: &OwnedFd, pid: i32) -> nix::Result<bool> {
    let mut waited = Duration::ZERO;
    while waited < WITHIN + sched::waited_for_cpu(pid) {
        if descriptor::ends_within(pidfd, SLICE)? {
            return Ok(true);
        }
        waited += SLICE;
    }
    Ok(false)
}

/// How a child has ended, and what it has printed and said until then.
struct End {
    printed: Vec<u8>,
    said: Vec<u8>,
    /// The signal that has ended it, but for ours.
    signal: Option<i32>,
}

impl End {
    /// Waits for a child, and ends it if it takes too long.
    fn of(mut child: Child) -> std::io::Result<End> {
        let pidfd = pidfd_open(child.id() as i32).map_err(std::io::Error::other)?;
        let ends = ends_in_time(&pidfd, child.id() as i32)?;
        if !ends {
            child.kill()?;
        }
        let status = child.wait()?;
        let mut end = End { printed: Vec::new(), said: Vec::new(), signal: status.signal().filter(|_| ends) };
        // Both are less than a pipe holds.
        child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut end.printed)).transpose()?;
        child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut end.said)).transpose()?;
        Ok(end)
    }

    /// Why there is no answer.
    fn why(&self) -> String {
        let said = String::from_utf8_lossy(&self.said).trim().trim_start_matches("ckpt: ").to_owned();
        match self.signal {
            _ if !said.is_empty() => said,
            Some(signal) => format!("it was ended by signal {signal}"),
            None => "it did not answer in time".to_owned(),
        }
    }
}
