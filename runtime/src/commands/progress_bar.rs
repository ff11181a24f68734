//! A bar for work that takes long enough for a person to wonder, at a terminal only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that takes less than this needs no bar.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// Redraws in a second.
const REDRAWS_PER_S: u8 = 10;

/// The progress of one command. Draws on standard error, nothing if that is not a terminal.
pub struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
    is_terminal: bool,
}

impl Progress {
    /// Starts the clock.
    pub fn start() -> Progress {
        Progress { started: Instant::now(), bar: None, is_terminal: std::io::stderr().is_terminal() }
    }

    /// `done` of `total` units of `step` are complete; 0 of 0 where that is not known.
    pub fn update(&mut self, step: &'static str, done: u64, total: u64, unit: Unit) {
        if !self.is_terminal || self.started.elapsed() < SHOWN_AFTER {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S))
        });
        if bar.message() != step {
            bar.set_style(unit.style());
            bar.set_message(step);
        }
        bar.set_length(total);
        bar.set_position(done);
    }

    /// Removes the bar.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things.
    Count,
}

impl Unit {
    fn style(self) -> ProgressStyle {
        let template = match self {
            Unit::Bytes => "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {eta} left",
            Unit::Count => "{msg} {wide_bar} {pos} of {len}",
        };
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    }
}
