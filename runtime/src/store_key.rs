//! The key of encrypted stores: the file or the command that CKPT_KEY names.
//!
//! A file of a key is for its owner alone, as that of an SSH key is: whoever may read it may read all that it opens. Where a
//! key comes from elsewhere, a command says it on its standard output; it gets no input and a minute.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ckpt_store::Key;
use ckpt_wire::ENV_KEY;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};

use crate::error::{Error, Result};
use crate::proc::task::{self, Users};

/// What a value that is a command begins with.
const COMMAND: &[u8] = b"command:";
/// A key is one short line.
const TEXT_BYTES_MAX: u64 = 4096;
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// The key that CKPT_KEY names, if it is set.
pub fn of_environment() -> Result<Option<Key>> {
    let value = std::env::var_os(ENV_KEY).filter(|value| !value.is_empty());
    value.map(|value| read(&value, Path::new("."))).transpose()
}

/// The key that `value` names: a file, relative to `directory` if it is relative, or `command:` and a command line.
pub fn read(value: &OsStr, directory: &Path) -> Result<Key> {
    match value.as_bytes().strip_prefix(COMMAND) {
        Some(line) => of_command(OsStr::from_bytes(line)),
        None => of_file(&directory.join(value)),
    }
}

/// Writes a new key to a file that is not there yet, for its owner alone.
pub fn create(path: &Path) -> Result<Key> {
    let failed = |source| Error::io("write a new key to", path, source);
    let key = Key::random().map_err(failed)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(path).map_err(failed)?;
    file.write_all(format!("{}\n", key.to_text()).as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(key)
}

fn of_file(path: &Path) -> Result<Key> {
    let failed = |source| Error::io("read the key in", path, source);
    // NONBLOCK: a FIFO must not hang us.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let user = geteuid().as_raw();
    let why = if !found.is_file() {
        Some(("it is not a regular file", "name a file, or command:COMMAND"))
    } else if found.uid() != user && found.uid() != 0 {
        Some((
            "it belongs to another user",
            "make a key of your own, or say command:cat and the file if you trust its owner",
        ))
    } else if found.mode() & 0o077 != 0 {
        Some(("others than its owner may use it", "chmod 600 it, and make a new key if somebody may have read it"))
    } else {
        None
    };
    if let Some((why, advice)) = why {
        return Err(Error::environment(format!("reading the key in {}", path.display()), why, advice));
    }
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    key_of(&text, &path.display().to_string())
}

fn of_command(line: &OsStr) -> Result<Key> {
    let place = format!("the output of {}", line.display());
    let failed =
        |why: String| Error::environment(format!("reading the key in {place}"), why, "try the command by itself");
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).env_remove("LD_PRELOAD").env_remove(ENV_KEY).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let said = said_by(&mut child);
    // What it has started ends with it.
    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
    let ended = child.wait().map_err(|error| failed(error.to_string()))?;
    match said {
        Ok((text, _)) if ended.success() || ended.code().is_none() => key_of(&text, &place),
        Ok(_) => Err(failed(format!("it ended with {ended}"))),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// What a command has said when it closes its output, which it has to in time, or has said enough. Its output is given back, open: one that
/// says more is to be ended by us, and not by that it finds no reader.
fn said_by(child: &mut Child) -> io::Result<(String, Option<ChildStdout>)> {
    let Some(mut output) = child.stdout.take() else { return Ok((String::new(), None)) };
    let (sender, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.by_ref().take(TEXT_BYTES_MAX).read_to_string(&mut text);
        // Nobody waits any more when it was too slow.
        let _ = sender.send(read.map(|_| (text, Some(output))));
    });
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("it said nothing within {COMMAND_LIMIT:?}"));
    said.recv_timeout(COMMAND_LIMIT).map_err(late)?
}

fn key_of(text: &str, place: &str) -> Result<Key> {
    Key::from_text(text).ok_or_else(|| {
        let advice = "a key is the one line that `ckpt key new` writes; name the right file, or mend what was mistyped";
        Error::environment(format!("reading the key in {place}"), "it is not a key", advice)
    })
}

/// The key of the program `pid`: that of our own environment, or else of the one that the program was started with. The environment
/// of another user's process is not asked: it may name a command.
pub fn of_program(pid: i32) -> Result<Option<Key>> {
    let ours = std::env::var_os(ENV_KEY).filter(|value| !value.is_empty());
    let value = match ours {
        Some(value) => Some(value.into_encoded_bytes()),
        None if is_of_ours(task::users(pid)?) => in_environment(&task::bytes(pid, "environ").unwrap_or_default()),
        None => None,
    };
    let directory = PathBuf::from(format!("/proc/{pid}/cwd"));
    let directory = std::fs::read_link(&directory).unwrap_or(directory);
    value.map(|value| read(OsStr::from_bytes(&value), &directory)).transpose()
}

/// Whether a process of these users may say what we execute: it could do so itself.
fn is_of_ours(users: Users) -> bool {
    users == [geteuid().as_raw(); 4]
}

fn in_environment(entries: &[u8]) -> Option<Vec<u8>> {
    let value = |entry: &[u8]| Some(entry.strip_prefix(ENV_KEY.as_bytes())?.strip_prefix(b"=")?.to_vec());
    entries.split(|&byte| byte == 0).find_map(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_new_key_is_for_its_owner_alone_and_never_replaces_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(read(path.as_os_str(), Path::new("/")).unwrap(), key);
        assert_eq!(read(OsStr::new("key"), dir.path()).unwrap(), key, "relative to the directory");
        assert!(create(&path).is_err());
        let link = dir.path().join("link");
        symlink(dir.path().join("elsewhere"), &link).unwrap();
        assert!(create(&link).is_err() && !dir.path().join("elsewhere").exists());
        assert_eq!(read(path.as_os_str(), Path::new("/")).unwrap(), key, "it is as it was");
    }

    #[test]
    fn a_key_that_others_may_read_or_own_and_what_is_no_key_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let refused = of_file(&path).unwrap_err().to_string();
            assert!(refused.contains("others than its owner") && refused.contains("chmod 600"), "{refused}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
            assert!(of_file(&path).unwrap_err().to_string().contains("belongs to another user"));
        }
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(of_file(&fifo).unwrap_err().to_string().contains("not a regular file"));
        assert!(of_file(&dir.path().join("missing")).is_err());
        let other = dir.path().join("other");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&other).unwrap();
        file.write_all(b"password\n").unwrap();
        assert!(of_file(&other).unwrap_err().to_string().contains("it is not a key"));
    }

    #[test]
    fn a_command_says_the_key_and_one_that_fails_or_says_something_else_is_named() {
        let key = Key::random().unwrap();
        let echo = format!("command:echo {}", key.to_text());
        assert_eq!(read(OsStr::new(&echo), Path::new("/")).unwrap(), key);
        for (line, expected) in [
            ("command:exit 3", "exit status: 3"),
            ("command:echo hello", "it is not a key"),
            ("command:cat /dev/zero", "it is not a key"),
        ] {
            let begun = Instant::now();
            let refused = read(OsStr::new(line), Path::new("/")).unwrap_err().to_string();
            assert!(refused.contains(expected) && refused.contains(&line[8..]), "{refused}");
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
    }

    #[test]
    fn a_command_in_another_users_environment_is_not_executed() {
        if !geteuid().is_root() {
            println!("SKIPPED: being several users needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        let line = format!("command:touch {}; echo {}", made.display(), Key::random().unwrap().to_text());
        let key_of = |user: u32| {
            let mut command = Command::new("sleep");
            let mut child = command.arg("60").uid(user).env(ENV_KEY, &line).spawn().unwrap();
            let key = of_program(child.id() as i32);
            child.kill().unwrap();
            child.wait().unwrap();
            key.unwrap()
        };
        assert_eq!(key_of(65_534), None);
        assert!(!made.exists(), "it was executed");
        assert!(key_of(0).is_some() && made.exists(), "one of our own may say what we execute");
    }

    #[test]
    fn the_variable_is_found_in_an_environment() {
        assert_eq!(in_environment(b"A=1\0CKPT_KEY=/k\0CKPT_KEY=/other\0"), Some(b"/k".to_vec()));
        assert_eq!(in_environment(b"XCKPT_KEY=/k\0CKPT_KEYS=/k\0CKPT_KEY=\0"), None);
    }
}
