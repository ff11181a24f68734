//! How far a restart is, for whoever waits.

use crate::commands::progress_bar::{Progress, Unit};
use crate::error::Result;
use crate::restore::{Rebuilt, Stage};

/// Lets it run when its devices are back.
pub fn release_with_progress(rebuilt: Rebuilt) -> Result<()> {
    let mut bar = Progress::start();
    let released = rebuilt.release(&mut |stage, done, total| show(&mut bar, stage, done, total));
    bar.end();
    released
}

/// Shows how far a stage is.
pub fn show(bar: &mut Progress, stage: Stage, done: u64, total: u64) {
    let (step, unit) = match stage {
        Stage::Reading => ("reading", Unit::Bytes),
        Stage::Verifying => ("comparing files", Unit::Bytes),
        Stage::Mapping => ("filling memory", Unit::Bytes),
        Stage::Threads => ("threads", Unit::Count),
        Stage::Devices => ("filling device memory", Unit::Bytes),
        Stage::Born => ("processes", Unit::Count),
    };
    bar.update(step, done, total, unit);
}
