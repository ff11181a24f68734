//! The row of a checkpoint in its store: begun before anything is captured, and ended with the reason of a failure.

use std::time::{SystemTime, UNIX_EPOCH};

use ckpt_store::{Attempt, AttemptStart, Depth, Store};
use ckpt_wire::Control;

use super::kin::Acquaintance;
use super::request::Request;
use crate::error::{Error, Result};

/// The id of a job in a store.
pub fn job_id(control: &Control, kin: &Acquaintance) -> String {
    format!("{:016x}", kin.job_id(control))
}

/// Begins an attempt, if there is room for one.
pub fn begin(
    store: &Store,
    (control, kin): (&Control, &Acquaintance),
    request: &Request,
    depth: Depth,
) -> Result<Attempt> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let attempt = store.begin(AttemptStart {
        job: job_id(control, kin),
        name: String::from_utf8_lossy(ckpt_wire::text(&control.name)).into_owned(),
        trigger: request.trigger.clone(),
        started_unix_ms: since_epoch.as_millis() as u64,
        processes: 1,
        depth,
    })?;
    match attempt.check_room() {
        Ok(()) => Ok(attempt),
        Err(error) => Err(failed(attempt, error.into(), 0.0)),
    }
}

/// Ends an attempt, and gives the error back: it matters more than that it could not be written down (a full disk, say).
pub fn failed(attempt: Attempt, error: Error, stop_ms: f64) -> Error {
    if let Err(unrecorded) = attempt.fail(&error.to_string(), stop_ms) {
        log::warn!("recording a failed attempt: {unrecorded}");
    }
    error
}
