//! The packs that are open for reading: a few at a time, since a store has more packs than a process has descriptors.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    Result,
    files::{Files, Input, PackName},
};

const OPEN_MAX: usize = 32;

/// The packs read last, the latest first, and those that are held.
#[derive(Default)]
pub(crate) struct OpenPacks {
    latest: Mutex<Vec<(PackName, Arc<Input>)>>,
    held: Mutex<Vec<(PackName, Arc<Input>)>>,
}

impl OpenPacks {
    /// The pack, opened if it is not.
    pub fn get(&self, files: &Files, name: PackName) -> Result<Arc<Input>> {
        if let Some(input) = self.found(name) {
            return Ok(input);
        }
        // Two threads may both open it; the second descriptor then simply ages out of the list.
        let input = Arc::new(files.open(&name.name())?);
        let mut open = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(0, (name, input.clone()));
        open.truncate(OPEN_MAX);
        Ok(input)
    }

    /// Opens the pack, and keeps it open: it can be read although it is removed.
    pub fn hold(&self, files: &Files, name: PackName) -> Result<()> {
        let input = self.get(files, name)?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push((name, input));
        Ok(())
    }

    /// Closes a pack, so that its removal gives the room back.
    pub fn forget(&self, name: PackName) {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).retain(|(open, _)| *open != name);
    }

    fn found(&self, name: PackName) -> Option<Arc<Input>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, input)) = held.iter().find(|(held, _)| *held == name) {
            return Some(input.clone());
        }
        let mut open = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|(found, _)| *found == name)?;
        open[..=at].rotate_right(1);
        Some(open[0].1.clone())
    }
}
