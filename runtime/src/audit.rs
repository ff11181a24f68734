//! What root does to programs and stores of other users, told to the host's log: a datagram to /dev/log, which journald, rsyslog and
//! others listen on.
//!
//! One line when it is done or has failed: who, what, whose, from where, and the outcome. Without a listener nothing is said, and
//! nobody is waited for.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::unistd::{geteuid, getppid, getuid, ttyname};

use crate::error::{Error, Result};
use crate::location::Location;
use crate::proc::task;
use crate::units;

/// Where the host's log listens.
const LISTENER: &str = "/dev/log";
/// `LOG_AUTHPRIV | LOG_NOTICE`, and the same for what has failed: `LOG_WARNING`.
const DONE: u32 = 10 << 3 | 5;
const FAILED: u32 = 10 << 3 | 4;
/// What `/proc/self/loginuid` says where no one has logged in.
const NO_LOGIN: u32 = u32::MAX;

/// What is about to be said.
#[derive(Debug, Default)]
pub struct Record {
    line: String,
    owner: u32,
}

impl Record {
    /// What is stored is of a program of `user`, in a store of root's own.
    pub fn program_of(&mut self, user: u32) -> &mut Record {
        if self.owner == 0 {
            self.owner = user;
        }
        self
    }

    /// Adds a number.
    pub fn number(&mut self, name: &str, value: impl Into<i128>) -> &mut Record {
        self.word(name, &value.into().to_string())
    }

    /// Adds text, which may hold anything.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Record {
        let value = units::printable(value).replace('\\', "\\\\").replace('"', "\\\"");
        self.word(name, &format!("\"{value}\""))
    }

    fn word(&mut self, name: &str, value: &str) -> &mut Record {
        if !self.line.is_empty() {
            self.line.push(' ');
        }
        self.line += &format!("{name}={value}");
        self
    }
}

/// Does `act` to process `pid`, and says so if that is another user's and we are root.
///
/// # Errors
/// Those of `act`.
pub fn of_process<T>(what: &str, pid: i32, act: impl FnOnce(&mut Record) -> Result<T>) -> Result<T> {
    if !geteuid().is_root() {
        return act(&mut Record::default());
    }
    let mut record = Record { owner: owner_of_process(pid).unwrap_or(0), ..Record::default() };
    record.number("pid", pid);
    told(what, record, act)
}

/// Does `act` to the store at `dir`, and says so if that is another user's and we are root.
///
/// # Errors
/// Those of `act`.
pub fn of_store<T>(what: &str, dir: &Path, act: impl FnOnce(&mut Record) -> Result<T>) -> Result<T> {
    if geteuid().is_root() { of_store_for_root(what, dir, act) } else { act(&mut Record::default()) }
}

/// The same where root has become the owner for it.
///
/// # Errors
/// Those of `act`.
pub fn of_store_for_root<T>(what: &str, dir: &Path, act: impl FnOnce(&mut Record) -> Result<T>) -> Result<T> {
    let mut record = Record { owner: owner_of_store(dir).unwrap_or(0), ..Record::default() };
    record.text("store", &dir.to_string_lossy());
    told(what, record, act)
}

/// Who we are comes first: this process may be somebody else when `act` is done.
fn told<T>(what: &str, mut record: Record, act: impl FnOnce(&mut Record) -> Result<T>) -> Result<T> {
    let from = ourselves();
    let outcome = act(&mut record);
    if record.owner != 0 {
        send(outcome.as_ref().map_or(FAILED, |_| DONE), &line(what, &record, &from, outcome.as_ref().err()));
    }
    outcome
}

fn line(what: &str, record: &Record, from: &Record, error: Option<&Error>) -> String {
    let mut line = Record::default();
    line.word("action", what).number("owner", record.owner);
    line.line += &format!(" {} {}", record.line, from.line);
    match error {
        None => line.word("result", "done"),
        Some(error) => line.text("result", &error.to_string()),
    };
    line.line
}

/// Who we are and where from.
fn ourselves() -> Record {
    let mut line = Record::default();
    line.number("uid", getuid().as_raw());
    if let Some(login) = login_user() {
        line.number("loginuid", login);
    }
    for name in ["SUDO_UID", "PKEXEC_UID"] {
        if let Ok(user) = std::env::var(name) {
            line.text(&name.to_lowercase(), &user);
        }
    }
    let terminal = ttyname(std::io::stdin()).or_else(|_| ttyname(std::io::stderr()));
    line.text("tty", &terminal.map_or("none".into(), |path| path.to_string_lossy().into_owned()));
    let parent = getppid().as_raw();
    let name = task::text(parent, "comm").unwrap_or_default();
    line.number("parent", parent).text("parent_name", name.trim_end());
    line
}

fn login_user() -> Option<u32> {
    let user = fs::read_to_string("/proc/self/loginuid").ok()?.trim().parse().ok()?;
    (user != NO_LOGIN).then_some(user)
}

fn owner_of_process(pid: i32) -> Option<u32> {
    let status = task::text(pid, "status").ok()?;
    task::status_value(&status, "Uid")?.split_whitespace().next()?.parse().ok()
}

/// That of a bucket is not known.
fn owner_of_store(dir: &Path) -> Option<u32> {
    let directory = Location::of(dir).ok()?.into_directory().ok()?;
    Some(fs::metadata(directory).ok()?.uid())
}

/// A log that is full or not there loses the line.
fn send(priority: u32, line: &str) {
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let _ = socket.set_nonblocking(true).and_then(|()| socket.send_to(datagram(priority, line).as_bytes(), LISTENER));
}

/// As syslog(3) of the C library writes it.
fn datagram(priority: u32, line: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("<{priority}>{} ckpt[{}]: {line}", units::syslog_time(now.as_secs()), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_end_its_quotes_or_begin_a_line() {
        let mut record = Record::default();
        record.number("pid", 7).text("store", "/a b\" result=done\nckpt\\\u{202e}");
        assert_eq!(record.line, "pid=7 store=\"/a b\\\" result=done\u{fffd}ckpt\\\\\u{fffd}\"");
    }

    #[test]
    fn a_datagram_is_one_that_syslog_takes() {
        let text = datagram(DONE, "action=prune");
        let (head, message) = text.split_once(": ").unwrap();
        assert_eq!(message, "action=prune");
        let name = format!(" ckpt[{}]", std::process::id());
        assert!(head.starts_with("<85>") && head.ends_with(&name) && head.len() == 4 + 15 + name.len(), "{head}");
    }

    #[test]
    fn what_is_our_own_is_done_without_a_word() {
        let outcome = of_process("checkpoint", std::process::id() as i32, |_| Ok(7));
        assert_eq!(outcome.unwrap(), 7);
        assert!(owner_of_store(Path::new("s3://bucket/x")).is_none());
    }
}
