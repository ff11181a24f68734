//! Which CUDA devices there are, asked in a process of its own: a driver that has been asked leaves threads and descriptors
//! behind.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::descriptor::{self, pidfd_open};
use crate::error::{Error, Result};

/// The hidden command that asks.
pub const COMMAND: &str = "devices";
/// How long the driver may take to begin: seconds, where nothing else keeps it awake.
const WITHIN: Duration = Duration::from_secs(60);

/// What a driver has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Its devices, in its order.
    pub devices: Vec<Device>,
    /// Whether it has calls that checkpoint a process.
    pub can_checkpoint: bool,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// How the driver names it in every process.
    pub uuid: [u8; 16],
    /// Its model.
    pub model: String,
    /// What code it runs: 9, 0 for sm_90.
    pub capability: (u32, u32),
    /// How much memory it has.
    pub bytes: u64,
}

impl Survey {
    /// What this driver has, asked here.
    ///
    /// # Errors
    /// Without a driver, or when it does not know.
    pub fn here(driver: &Path) -> Result<Survey> {
        let (found, can_checkpoint) = ckpt_kernels::device::survey(driver)?;
        let devices = found.into_iter().map(|one| Device {
            uuid: one.uuid,
            model: one.model,
            capability: one.capability,
            bytes: one.bytes,
        });
        Ok(Survey { devices: devices.collect(), can_checkpoint })
    }

    /// What this driver has, asked in a process of its own, which sees all devices. It is one of this user and group, if they are
    /// given: whoever has named the driver.
    ///
    /// # Errors
    /// When that cannot be asked, or finds no driver.
    pub fn apart(driver: &Path, owner: Option<(u32, u32)>) -> Result<Survey> {
        let failed = |source| Error::io("ask", driver, source);
        let mut option = OsString::from("--driver=");
        option.push(driver);
        let mut command = Command::new("/proc/self/exe");
        if let Some((user, group)) = owner {
            command.uid(user).gid(group);
        }
        let child = command
            .args([OsString::from(COMMAND), option])
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (printed, said) = end_of(child).map_err(failed)?;
        serde_json::from_slice(&printed).map_err(|_| {
            let said = String::from_utf8_lossy(&said).trim().trim_start_matches("ckpt: ").to_owned();
            let why = if said.is_empty() { "it did not answer in time".to_owned() } else { said };
            Error::environment(
                format!("asking the CUDA driver {}", driver.display()),
                why,
                "see whether nvidia-smi works on this host",
            )
        })
    }
}

/// What a child has printed and said, which is ended if it takes too long.
fn end_of(mut child: Child) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut printed, mut said) = (Vec::new(), Vec::new());
    let pidfd = pidfd_open(child.id() as i32).map_err(std::io::Error::other)?;
    if !descriptor::ends_within(&pidfd, WITHIN)? {
        child.kill()?;
        child.wait()?;
        return Ok((printed, said));
    }
    child.wait()?;
    // Both are less than a pipe holds.
    child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut printed)).transpose()?;
    child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut said)).transpose()?;
    Ok((printed, said))
}
