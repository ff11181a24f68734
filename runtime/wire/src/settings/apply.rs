//! From the user's variables to the control block.
//!
//! A value that cannot be read refuses checkpoints, with the reason in the control block, and changes nothing
//! else: the program runs on as if it had not been preloaded. Guessing would be worse, and there is nowhere to
//! print to that is not the program's.

use super::Settings;
use super::numbers::{parse_bytes, parse_decimal, parse_hex, parse_interval_ms};
use super::signals::parse_signal;
use super::text::{Text, write_field};
use crate::allocations::{GRANULE_BYTES, RECORD_NOTHING};
use crate::{
    CHUNK_BYTES_DEFAULT, COPY_WITHOUT_STORE, Confinement, Control, DEVICE_WAIT_MS_DEFAULT, DIGEST_ANY, DIGEST_BLAKE3,
    DIGEST_SHA1, FILES_MAX_BYTES_DEFAULT, FILES_NONE, MEMORY_BYTES_MIN, METHOD_FULL_DUMP, METHOD_INC_TRACKING,
    METHOD_LOCAL_DEDUP, METHOD_PAGES, METHOD_TREE, PATH_BYTES, TEXT_BYTES, TREE_MIN_BYTES_DEFAULT, is_chunk_length,
    is_copy_id,
};
use crate::{VERIFY_ALL, VERIFY_HOST, VERIFY_NOTHING};

/// Why checkpoints are refused, for [`Control::reason`].
pub type Reason = Text<TEXT_BYTES>;

/// The reason of ckpt itself, which needs no word to the user: all of its commands may have libckpt.so from the environment.
pub const ITSELF: &[u8] = b"this program is ckpt itself";

/// The store's directory when the user names none, in the working directory.
const DIR_DEFAULT: &[u8] = b"ckpt-store";
/// The trigger signal when the user names none.
const SIGNAL_DEFAULT: i32 = libc::SIGUSR1;
/// Bytes of a user's value that a reason quotes at most.
const QUOTED_MAX: usize = 24;

/// What only the one who reads the variables knows: where the program is and what it was started as.
pub trait Surroundings {
    /// The program's working directory, which may begin with "(unreachable)", in `into` or elsewhere.
    fn working_directory<'a>(&'a self, into: &'a mut [u8]) -> Option<&'a [u8]>;
    /// The path that the program was executed by; empty if it is not known.
    fn executed_path(&self) -> &[u8];
    /// An id that no other job in the store has.
    fn random_job(&self) -> u64;
    /// Path of the library or executable that the `ckpt` executable lies beside.
    fn installed_file(&self) -> Option<&[u8]>;
}

/// What the variables say to the hooks, which have no place in the control block.
pub struct Hooks {
    /// Bytes of the smallest heap allocation that is recorded.
    pub record_from_bytes: u64,
    /// Whether libckpt.so backs device memory.
    pub back_device_memory: bool,
    /// Whether managed memory is host memory that the driver has pinned.
    pub pin_managed_memory: bool,
    /// How long to wait for devices that cannot be had back, in milliseconds.
    pub device_wait_ms: u64,
}

/// Fills in what the variables say.
///
/// # Errors
/// With the name of the variable whose value cannot be used, and what could be written instead.
pub fn apply(
    settings: &Settings<'_>,
    surroundings: &impl Surroundings,
    control: &mut Control,
) -> Result<Hooks, Reason> {
    control.signal = match settings.signal {
        None => SIGNAL_DEFAULT,
        Some(text) => parse_signal(text)
            .ok_or_else(|| unreadable(b"CKPT_SIGNAL", text, b"a name such as USR1, RTMIN+3, a number or none"))?,
    };
    control.interval_ms = match settings.interval {
        None => 0,
        Some(text) => {
            parse_interval_ms(text).ok_or_else(|| unreadable(b"CKPT_INTERVAL", text, b"500ms, 30s, 10m or 2h"))?
        }
    };
    control.memory_bytes = match settings.memory {
        None => 0,
        Some(text) => parse_bytes(text)
            .filter(|&bytes| bytes >= MEMORY_BYTES_MIN)
            .ok_or_else(|| unreadable(b"CKPT_MEMORY", text, b"256M, 1G or bytes, 16M or more"))?,
    };
    control.agent_pid = match settings.agent_pid {
        None => 0,
        Some(text) => parse_decimal(text)
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or_else(|| unreadable(b"CKPT_AGENT_PID", text, b"the pid of an agent"))?,
    };
    control.job = match settings.job {
        None => surroundings.random_job(),
        Some(text) => parse_hex(text).ok_or_else(|| unreadable(b"CKPT_JOB", text, b"at most 16 hexadecimal digits"))?,
    };
    if let Some((mark, job, founder)) = settings.mark.and_then(parse_mark) {
        (control.mark, control.marked_job, control.founder) = (mark, job, founder);
    }
    control.set_confinement(settings.confinement.and_then(Confinement::parse));
    control.digest = match settings.digest {
        None => DIGEST_ANY,
        Some(b"sha1") => DIGEST_SHA1,
        Some(b"blake3") => DIGEST_BLAKE3,
        Some(text) => return Err(unreadable(b"CKPT_DIGEST", text, b"sha1 or blake3")),
    };
    control.keep = match settings.keep {
        None => 0,
        Some(text) => parse_decimal(text)
            .filter(|&keep| keep > 0)
            .ok_or_else(|| unreadable(b"CKPT_KEEP", text, b"a number from 1 on"))?,
    };
    apply_method(settings, control)?;
    let record_from_bytes = match settings.track_min {
        None => GRANULE_BYTES,
        Some(b"none") => RECORD_NOTHING,
        Some(text) => parse_bytes(text)
            .filter(|&bytes| bytes >= GRANULE_BYTES)
            .ok_or_else(|| unreadable(b"CKPT_TRACK_MIN", text, b"64K or more, or none"))?,
    };
    let back_device_memory = match settings.device_backing {
        None | Some(b"mapped") => true,
        Some(b"native") => false,
        Some(text) => return Err(unreadable(b"CKPT_DEVICE_BACKING", text, b"mapped or native")),
    };
    let pin_managed_memory = match settings.managed_backing {
        None | Some(b"native") => false,
        Some(b"pinned") => true,
        Some(text) => return Err(unreadable(b"CKPT_MANAGED_BACKING", text, b"native or pinned")),
    };
    let device_wait_ms = match settings.device_wait {
        None => DEVICE_WAIT_MS_DEFAULT,
        Some(text) => {
            parse_interval_ms(text).ok_or_else(|| unreadable(b"CKPT_DEVICE_WAIT", text, b"30s, 10m or 2h"))?
        }
    };
    control.files_max_bytes = match settings.files {
        None => FILES_MAX_BYTES_DEFAULT,
        Some(b"none") => FILES_NONE,
        Some(b"all") => FILES_NONE - 1,
        Some(text) => parse_bytes(text).ok_or_else(|| unreadable(b"CKPT_FILES", text, b"1G, bytes, all or none"))?,
    };
    if let Some(paths) = settings.with_dir {
        write_absolute_list(surroundings, b"CKPT_WITH_DIR", &mut control.with_dirs, paths)?;
    }
    if let Some(copy) = settings.copy {
        apply_copy(copy, settings.dir.is_some(), control)?;
    }
    write_absolute(surroundings, b"CKPT_DIR", &mut control.dir, settings.dir.unwrap_or(DIR_DEFAULT))?;
    if let Some(path) = settings.log {
        write_absolute(surroundings, b"CKPT_LOG", &mut control.log, path)?;
    }
    match settings.agent {
        Some(path) => write_absolute(surroundings, b"CKPT_AGENT", &mut control.agent, path)?,
        None => write_agent_beside(surroundings, &mut control.agent)?,
    }
    if crate::text(&control.agent) == surroundings.executed_path() {
        // Preloaded into everything by /etc/ld.so.preload, an agent would start the next one, and so on.
        let mut reason = Reason::new();
        reason.push(ITSELF);
        return Err(reason);
    }
    write_name(settings.name.unwrap_or_else(|| file_name(surroundings.executed_path())), &mut control.name);
    Ok(Hooks { record_from_bytes, back_device_memory, pin_managed_memory, device_wait_ms })
}

/// The mark, the job's id and the pid of the job's first process, as `mark::take` in libckpt.so writes them. Whatever else
/// it is, nobody has made it for us.
pub fn parse_mark(text: &[u8]) -> Option<(u64, u64, u64)> {
    let mut parts = text.splitn(3, |&byte| byte == b'-');
    let (mark, job) = (parse_hex(parts.next()?)?, parse_hex(parts.next()?)?);
    let founder = parse_decimal(parts.next()?)?;
    (mark != 0).then_some((mark, job, founder))
}

/// The copy of a checkpoint that this program is executed in. It has a store if the restart named one, and no other.
fn apply_copy(copy: &[u8], has_store: bool, control: &mut Control) -> Result<(), Reason> {
    if !is_copy_id(copy) || !write_field(&mut control.copy, &[copy]) {
        return Err(unreadable(b"CKPT_COPY", copy, b"1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'"));
    }
    if !has_store {
        let mut reason = Reason::new();
        reason.push(COPY_WITHOUT_STORE.as_bytes());
        return Err(reason);
    }
    Ok(())
}

/// How large memory is stored.
fn apply_method(settings: &Settings<'_>, control: &mut Control) -> Result<(), Reason> {
    control.method = match settings.method {
        None | Some(b"pages") => METHOD_PAGES,
        Some(b"tree") => METHOD_TREE,
        Some(b"full-dump") => METHOD_FULL_DUMP,
        Some(b"local-dedup") => METHOD_LOCAL_DEDUP,
        Some(b"inc-tracking") => METHOD_INC_TRACKING,
        Some(text) => {
            let usable = b"pages, tree, full-dump, local-dedup or inc-tracking";
            return Err(unreadable(b"CKPT_METHOD", text, usable));
        }
    };
    control.chunk_bytes = match settings.chunk {
        None => CHUNK_BYTES_DEFAULT,
        Some(text) => parse_decimal(text)
            .filter(|&bytes| is_chunk_length(bytes))
            .ok_or_else(|| unreadable(b"CKPT_CHUNK", text, b"32 to 4096 bytes, in steps of 4"))?,
    };
    control.tree_min_bytes = match settings.tree_min {
        None => TREE_MIN_BYTES_DEFAULT,
        Some(text) => parse_bytes(text).ok_or_else(|| unreadable(b"CKPT_TREE_MIN", text, b"16M, 1G or bytes"))?,
    };
    control.verify_matches = match settings.verify_matches {
        None => VERIFY_HOST,
        Some(b"no") => VERIFY_NOTHING,
        Some(b"yes") => VERIFY_ALL,
        Some(text) => return Err(unreadable(b"CKPT_VERIFY_MATCHES", text, b"yes or no")),
    };
    Ok(())
}

fn unreadable(variable: &[u8], value: &[u8], usable: &[u8]) -> Reason {
    let mut reason = Reason::new();
    reason.push(variable).push(b": cannot read ").push_quoted(value, QUOTED_MAX).push(b"; use ").push(usable);
    reason
}

/// Writes `path` into `field`, behind the working directory unless it is absolute already.
fn write_absolute(
    surroundings: &impl Surroundings,
    variable: &[u8],
    field: &mut [u8; PATH_BYTES],
    path: &[u8],
) -> Result<(), Reason> {
    let mut reason = Reason::new();
    let written = if path.starts_with(b"/") {
        write_field(field, &[path])
    } else {
        let mut relative = path;
        while let Some(rest) = relative.strip_prefix(b"./") {
            relative = rest;
        }
        let directory_bytes = match surroundings.working_directory(field) {
            // The kernel says "(unreachable)" in front of a directory outside the process's root.
            Some(directory) if directory.starts_with(b"/") => directory.len(),
            Some(_) | None => {
                reason.push(variable).push(b": the working directory has no path; give an absolute path");
                return Err(reason);
            }
        };
        // "/" is the one directory that ends with a slash.
        let end = if directory_bytes == 1 { 0 } else { directory_bytes };
        field.get_mut(end..).is_some_and(|rest| write_field(rest, &[b"/", relative]))
    };
    if written {
        return Ok(());
    }
    reason.push(variable).push(b": the path is longer than ").push_decimal(PATH_BYTES as u64 - 1, 1).push(b" bytes");
    Err(reason)
}

/// Writes `paths`, which colons separate, into `field`, each as [`write_absolute`] does.
fn write_absolute_list(
    surroundings: &impl Surroundings,
    variable: &[u8],
    field: &mut [u8; PATH_BYTES],
    paths: &[u8],
) -> Result<(), Reason> {
    let mut end = 0;
    for path in paths.split(|&byte| byte == b':').filter(|path| !path.is_empty()) {
        let mut absolute = [0; PATH_BYTES];
        write_absolute(surroundings, variable, &mut absolute, path)?;
        let (path, separator): (_, &[u8]) = (crate::text(&absolute), if end == 0 { b"" } else { b":" });
        if !field.get_mut(end..).is_some_and(|rest| write_field(rest, &[separator, path])) {
            let mut reason = Reason::new();
            reason.push(variable).push(b": the paths are longer than ").push_decimal(PATH_BYTES as u64 - 1, 1);
            reason.push(b" bytes together");
            return Err(reason);
        }
        end += separator.len() + path.len();
    }
    Ok(())
}

/// The `ckpt` in the directory that libckpt.so was loaded from, or that the agent was executed from.
fn write_agent_beside(surroundings: &impl Surroundings, field: &mut [u8; PATH_BYTES]) -> Result<(), Reason> {
    let mut reason = Reason::new();
    let Some(path) = surroundings.installed_file() else {
        reason.push(b"CKPT_AGENT: the directory of libckpt.so is not known; set CKPT_AGENT to the ckpt executable");
        return Err(reason);
    };
    let directory_bytes = path.len() - file_name(path).len();
    write_absolute(surroundings, b"CKPT_AGENT", field, path.get(..directory_bytes).unwrap_or_default())?;
    let end = crate::text(field).len();
    if field.get_mut(end..).is_some_and(|rest| write_field(rest, &[b"ckpt"])) {
        return Ok(());
    }
    reason.push(b"CKPT_AGENT: the path of libckpt.so is too long");
    Err(reason)
}

/// Writes the user's name for the job, or the file name of the program: of the script, if one was started by its `#!`.
fn write_name(name: &[u8], field: &mut [u8; TEXT_BYTES]) {
    // One byte of the field is for the zero behind the name.
    let _ = write_field(field, &[name.get(..TEXT_BYTES - 1).unwrap_or(name)]);
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}
