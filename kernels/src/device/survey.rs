//! Which devices a driver has, whatever uses them.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::entry_points::SurveyEntryPoints;
use super::error::Result;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// How the driver names it in every process.
    pub uuid: [u8; 16],
    /// Its model.
    pub model: String,
    /// What code it runs: 9, 0 for sm_90.
    pub capability: (u32, u32),
    /// How much memory it has.
    pub bytes: u64,
}

/// The devices of a driver, in its order, and whether it has calls that checkpoint a process. Makes no context.
///
/// # Errors
/// Without a driver, or when it does not know.
pub fn survey(path: &Path) -> Result<(Vec<Found>, bool)> {
    let driver = SurveyEntryPoints::load(path)?;
    let mut count = 0;
    // SAFETY: each writes where it is told to.
    unsafe {
        driver.init(0)?;
        driver.device_count(&raw mut count)?;
    }
    let devices = (0..count).map(|device| found(&driver, device)).collect::<Result<_>>()?;
    Ok((devices, can_checkpoint(path)))
}

fn found(driver: &SurveyEntryPoints, device: c_int) -> Result<Found> {
    let (mut uuid, mut name, mut bytes) = ([0; 16], [0_u8; 256], 0);
    // SAFETY: they write where they are told to, the second at most as much as there is.
    unsafe {
        driver.device_uuid(&raw mut uuid, device)?;
        driver.device_name(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int - 1, device)?;
        driver.device_bytes(&raw mut bytes, device)?;
    }
    let [major, minor] = CAPABILITY.map(|attribute| {
        let mut value = 0;
        // SAFETY: it writes where it is told to.
        unsafe { driver.device_attribute(&raw mut value, attribute, device) }.map(|()| value.unsigned_abs())
    });
    let model = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
    Ok(Found { uuid, model, capability: (major?, minor?), bytes: bytes as u64 })
}

fn can_checkpoint(path: &Path) -> bool {
    // SAFETY: it is open already, and looked at only.
    unsafe {
        Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).is_ok_and(|library| {
            library.get::<*const ()>(b"cuCheckpointProcessRestore\0").is_ok_and(|it| !it.is_null())
        })
    }
}
