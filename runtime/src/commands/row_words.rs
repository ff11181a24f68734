//! What the row of a checkpoint says, in words.

use ckpt_store::{AttemptRow, AttemptState};

use crate::units;

/// The word for `state`.
pub fn state_word(state: AttemptState) -> &'static str {
    match state {
        AttemptState::Sealed => "sealed",
        AttemptState::Failed => "failed",
        AttemptState::Writing => "writing",
    }
}

/// When `row` was sealed or, failing that, begun; a dash where the row is too damaged to say.
pub fn time(row: &AttemptRow) -> String {
    match row.sealed_unix_s.unwrap_or(row.started_unix_ms / 1000) {
        0 => "-".to_owned(),
        unix_s => units::local_time(unix_s),
    }
}
