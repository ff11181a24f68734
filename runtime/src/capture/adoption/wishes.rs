//! What the user wants of a program that libckpt.so is not loaded into, read from its environment by the agent.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use ckpt_wire::settings::{self, Settings, Surroundings};
use ckpt_wire::{CONTROL_VERSION, Control, ENV_DIR, PATH_BYTES, STATE_READY};
use zerocopy::FromZeros;

use crate::error::{Error, Result};
use crate::proc::{auxv, task};
use crate::ptrace::read_memory;

/// The control block of process `pid`, but for addresses and [`Control::magic`].
///
/// # Errors
/// When its environment does not say that it is a program of ours, or cannot be understood.
pub fn control(pid: i32) -> Result<Box<Control>> {
    let environment = task::bytes(pid, "environ")?;
    let entries = || environment.split(|&byte| byte == 0);
    if !entries().any(is_ours) {
        return Err(Error::unsupported(
            format!("process {pid}"),
            "it is statically linked, and was not started by `ckpt run`",
            "start it with `ckpt run`, or with LD_PRELOAD=libckpt.so in its environment",
        ));
    }
    let mut control = Box::new(Control::new_zeroed());
    control.version = CONTROL_VERSION;
    control.bytes = size_of::<Control>() as u32;
    settings::apply(&Settings::read(entries()), &Outside::of(pid)?, &mut control).map_err(|reason| {
        let why = String::from_utf8_lossy(reason.as_bytes()).into_owned();
        Error::unsupported(format!("process {pid}"), why, "start it again with this corrected")
    })?;
    // Nobody inside could take a checkpoint on a signal.
    control.signal = 0;
    control.state = STATE_READY;
    Ok(control)
}

/// The control block of a process whose environment says nothing, but for addresses and [`Control::magic`]: what the user wants of its
/// parent, whose control block is `parent`.
///
/// # Errors
/// When there are no random numbers.
pub fn of_parent(parent: &Control) -> Result<Box<Control>> {
    let mut control = Box::new(Control::new_zeroed());
    control.version = CONTROL_VERSION;
    control.bytes = size_of::<Control>() as u32;
    control.state = STATE_READY;
    control.job = random()?;
    (control.name, control.dir, control.log, control.agent) = (parent.name, parent.dir, parent.log, parent.agent);
    (control.interval_ms, control.digest, control.keep) = (parent.interval_ms, parent.digest, parent.keep);
    (control.memory_bytes, control.method) = (parent.memory_bytes, parent.method);
    (control.chunk_bytes, control.tree_min_bytes) = (parent.chunk_bytes, parent.tree_min_bytes);
    (control.verify_matches, control.files_max_bytes) = (parent.verify_matches, parent.files_max_bytes);
    control.with_dirs = parent.with_dirs;
    (control.mark, control.marked_job, control.founder) = (parent.mark, parent.marked_job, parent.founder);
    (control.filters, control.no_new_privs) = (parent.filters, parent.no_new_privs);
    control.copy = parent.copy;
    Ok(control)
}

fn random() -> Result<u64> {
    let mut random = [0; 8];
    let failed = |source| Error::io("read", "/dev/urandom", source);
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(failed)?;
    Ok(u64::from_ne_bytes(random))
}

/// Whether an entry of an environment says that checkpoints are wanted.
fn is_ours(entry: &[u8]) -> bool {
    let names_library = |list: &[u8]| list.windows(b"libckpt".len()).any(|part| part == b"libckpt");
    entry.strip_prefix(ENV_DIR.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        || entry.strip_prefix(b"LD_PRELOAD=").is_some_and(names_library)
}

/// What can be known of a program from outside.
struct Outside {
    working_directory: Vec<u8>,
    executed_path: Vec<u8>,
    installed_file: Option<Vec<u8>>,
    random: u64,
}

impl Outside {
    fn of(pid: i32) -> Result<Outside> {
        let own = std::env::current_exe().ok();
        Ok(Outside {
            working_directory: task::link(pid, "cwd")?,
            executed_path: executed_path(pid).unwrap_or_default(),
            installed_file: own.map(|path| path.into_os_string().as_bytes().to_vec()),
            random: random()?,
        })
    }
}

impl Surroundings for Outside {
    fn working_directory<'a>(&'a self, _: &'a mut [u8]) -> Option<&'a [u8]> {
        Some(&self.working_directory)
    }

    fn executed_path(&self) -> &[u8] {
        &self.executed_path
    }

    fn random_job(&self) -> u64 {
        self.random
    }

    fn installed_file(&self) -> Option<&[u8]> {
        self.installed_file.as_deref()
    }
}

/// The path that was given to execve: of a script, if one was started by its `#!`.
fn executed_path(pid: i32) -> Option<Vec<u8>> {
    let address = auxv::value(pid, libc::AT_EXECFN).ok()??;
    let mut path = Vec::new();
    // It lies near the end of the stack, so no page is read that may not be there.
    while path.len() < PATH_BYTES && !path.contains(&0) {
        let from = address + path.len() as u64;
        let mut part = vec![0; (4096 - from % 4096) as usize];
        read_memory(pid, from, &mut part).ok()?;
        path.extend(part);
    }
    Some(ckpt_wire::text(&path).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_ours_if_its_environment_says_so() {
        for ours in ["CKPT_DIR=/store", "CKPT_DIR=", "LD_PRELOAD=/opt/libckpt.so", "LD_PRELOAD=a.so libckpt.so"] {
            assert!(is_ours(ours.as_bytes()), "{ours}");
        }
        for other in ["", "CKPT_DIRECTORY=/store", "LD_PRELOAD=", "LD_PRELOAD=other.so", "X=libckpt.so"] {
            assert!(!is_ours(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn the_path_that_we_were_executed_by_is_found() {
        let path = executed_path(std::process::id() as i32).unwrap();
        let own = std::env::args_os().next().unwrap();
        assert_eq!(String::from_utf8_lossy(&path), own.to_string_lossy());
    }
}
