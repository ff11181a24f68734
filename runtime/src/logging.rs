//! The log: one line an event, to standard error, or to a file that several processes append to.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use ckpt_wire::ENV_LOG;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::error::{Error, Result};
use crate::units::{self, printable};
use crate::{messages, outlet};

struct Logger {
    /// None: standard error.
    file: Mutex<Option<File>>,
}

static LOGGER: Logger = Logger { file: Mutex::new(None) };

/// Starts the log: warnings to standard error, or everything noteworthy to the file that `CKPT_LOG` names. Each
/// `-v` (`verbosity`) adds a level.
pub fn start(verbosity: u8) {
    // A second logger would be an error of ours alone, and the first one goes on.
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(level(LevelFilter::Warn, verbosity));
    if let Some(path) = std::env::var_os(ENV_LOG).filter(|path| !path.is_empty()) {
        match append_to(Path::new(&path)) {
            Ok(()) => log::set_max_level(level(LevelFilter::Info, verbosity)),
            Err(error) => log::warn!("{error}; the log goes to standard error"),
        }
    }
}

/// Appends the log to the file at `path` from now on, everything noteworthy included. It is a regular file of ours: others may
/// read it, and a named pipe would stop us.
pub fn append_to(path: &Path) -> Result<()> {
    let file = outlet::append(path).map_err(|source| Error::io("open the log", path, source))?;
    if let Ok(mut current) = LOGGER.file.lock() {
        *current = Some(file);
    }
    log::set_max_level(log::max_level().max(LevelFilter::Info));
    Ok(())
}

fn level(least: LevelFilter, verbosity: u8) -> LevelFilter {
    LevelFilter::iter().nth(least as usize + usize::from(verbosity)).unwrap_or(LevelFilter::Trace)
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // There is nobody to tell that the log cannot be written.
        if let Ok(mut file) = self.file.lock() {
            match &mut *file {
                Some(file) => drop(file.write_all(line_for_file(record).as_bytes())),
                None => say_to_person(record),
            }
        }
    }

    fn flush(&self) {}
}

fn say_to_person(record: &Record<'_>) {
    match record.level() {
        Level::Error => messages::say(*record.args()),
        level => messages::say(format_args!("{}: {}", level.as_str().to_lowercase(), record.args())),
    }
}

/// Written with one call, so that the lines of several processes do not mix.
fn line_for_file(record: &Record<'_>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (time, pid) = (units::local_time(now.as_secs()), std::process::id());
    let text = printable(&record.args().to_string().replace('\n', "\\n"));
    format!("{time}.{:03} {:5} [{pid}] {text}\n", now.subsec_millis(), record.level())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_v_adds_a_level_up_to_all() {
        assert_eq!(level(LevelFilter::Warn, 0), LevelFilter::Warn);
        assert_eq!(level(LevelFilter::Warn, 1), LevelFilter::Info);
        assert_eq!(level(LevelFilter::Info, 2), LevelFilter::Trace);
        assert_eq!(level(LevelFilter::Info, 200), LevelFilter::Trace);
    }

    #[test]
    fn a_line_of_the_file_has_time_level_and_pid_and_is_one_line() {
        let line = line_for_file(&Record::builder().level(Level::Warn).args(format_args!("a\nb\x1b[2J")).build());
        assert!(line.ends_with(&format!(" WARN  [{}] a\\nb\u{fffd}[2J\n", std::process::id())), "{line}");
    }
}
