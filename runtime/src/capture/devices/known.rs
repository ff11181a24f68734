//! What is remembered of devices between two checkpoints of a job.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use ckpt_wire::Control;

use super::content::Contents;
use crate::capture::device_variables::Variables;
use crate::capture::hold;
use crate::error::Result;
use crate::managed_trial::ManagedTrial;
use crate::survey::Survey;

/// What drivers have, by their files, as far as that was to be learned. They are asked once, while the program runs.
#[derive(Default)]
pub struct Surveys(HashMap<PathBuf, Option<Survey>>);

impl Surveys {
    pub fn of(&mut self, driver: PathBuf) -> Option<&Survey> {
        let asked = self.0.entry(driver).or_insert_with_key(|driver| match Survey::apart(driver, None) {
            Ok(survey) => Some(survey),
            Err(error) => {
                log::warn!("a restart will not know the model of the devices: {error}");
                None
            }
        });
        asked.as_ref()
    }
}

/// Drivers, by their files, that have let managed memory be evacuated when that was tried.
#[derive(Default)]
pub struct Trials(HashSet<PathBuf>);

impl Trials {
    /// Why the managed memory of process `pid` cannot be evacuated, if it is so.
    pub fn why_not(&mut self, pid: i32, control: &Control) -> Result<Option<String>> {
        let Some(there) = hold::look(pid, control)? else { return Ok(None) };
        let driver = hold::file_of(pid, there.driver)?;
        if self.0.contains(&driver) {
            return Ok(None);
        }
        let tried = ManagedTrial::apart(&driver, None)?;
        // In its old place, or pinned where it is: one is enough, and the second is what is left when an agent dies.
        if !(tried.leaves && tried.can_be_registered) {
            return Ok(Some(tried.why.unwrap_or_default()));
        }
        self.0.insert(driver);
        Ok(None)
    }
}

/// What is remembered of devices between two checkpoints of a job.
#[derive(Default)]
pub struct Known {
    pub surveys: Surveys,
    pub trials: Trials,
    /// Of device code that processes have loaded, by the instances of libckpt.so in them.
    pub variables: HashMap<u64, Variables>,
    pub contents: Contents,
}

impl Known {
    /// The attempt has become a checkpoint.
    pub fn sealed(&mut self) {
        self.contents.sealed();
    }

    /// Forgets what the checkpoints before had.
    pub fn forget(&mut self) {
        self.contents.forget();
    }
}
