//! From the user's variables to the control block.
//!
//! A value that cannot be read refuses checkpoints, with the reason in the control block, and changes nothing
//! else: the program runs on as if it had not been preloaded. Guessing would be worse, and there is nowhere to
//! print to that is not the program's.

use core::ffi::{CStr, c_char};

use ckpt_wire::allocations::{GRANULE_BYTES, RECORD_NOTHING};
use ckpt_wire::{
    CHUNK_BYTES_DEFAULT, Control, DIGEST_ANY, DIGEST_BLAKE3, DIGEST_SHA1, FILES_MAX_BYTES_DEFAULT, FILES_NONE,
    METHOD_PAGES, METHOD_TREE, PATH_BYTES, TEXT_BYTES, TREE_MIN_BYTES_DEFAULT, is_chunk_length,
};

use crate::hooks::{cuda, recorded};
use crate::numbers::{parse_bytes, parse_decimal, parse_hex, parse_interval_ms};
use crate::objects;
use crate::settings::Settings;
use crate::signals::parse_signal;
use crate::sys;
use crate::text::{Text, write_field};

/// Why checkpoints are refused, for [`Control::reason`].
pub type Reason = Text<TEXT_BYTES>;

/// The store's directory when the user names none, in the working directory.
const DIR_DEFAULT: &[u8] = b"ckpt-store";
/// The trigger signal when the user names none.
const SIGNAL_DEFAULT: i32 = libc::SIGUSR1;
/// Bytes of a user's value that a reason quotes at most.
const QUOTED_MAX: usize = 24;

/// Fills in what the variables say.
pub fn apply(settings: &Settings<'_>, control: &mut Control) -> Result<(), Reason> {
    control.signal = match settings.signal {
        None => SIGNAL_DEFAULT,
        Some(text) => parse_signal(text)
            .ok_or_else(|| unreadable(b"CKPT_SIGNAL", text, b"a name such as USR1, RTMIN+3, a number or none"))?,
    };
    control.interval_ms = match settings.interval {
        None => 0,
        Some(text) => parse_interval_ms(text).ok_or_else(|| unreadable(b"CKPT_INTERVAL", text, b"30s, 10m or 2h"))?,
    };
    control.memory_bytes = match settings.memory {
        None => 0,
        Some(text) => parse_bytes(text).ok_or_else(|| unreadable(b"CKPT_MEMORY", text, b"256M, 1G or bytes"))?,
    };
    control.agent_pid = match settings.agent_pid {
        None => 0,
        Some(text) => parse_decimal(text)
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or_else(|| unreadable(b"CKPT_AGENT_PID", text, b"the pid of an agent"))?,
    };
    control.job = match settings.job {
        None => random_job(),
        Some(text) => parse_hex(text).ok_or_else(|| unreadable(b"CKPT_JOB", text, b"at most 16 hexadecimal digits"))?,
    };
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
    recorded::record_from(match settings.track_min {
        None => GRANULE_BYTES,
        Some(b"none") => RECORD_NOTHING,
        Some(text) => parse_bytes(text)
            .filter(|&bytes| bytes >= GRANULE_BYTES)
            .ok_or_else(|| unreadable(b"CKPT_TRACK_MIN", text, b"64K or more, or none"))?,
    });
    cuda::back_allocations(match settings.device_backing {
        None | Some(b"mapped") => true,
        Some(b"native") => false,
        Some(text) => return Err(unreadable(b"CKPT_DEVICE_BACKING", text, b"mapped or native")),
    });
    control.files_max_bytes = match settings.files {
        None => FILES_MAX_BYTES_DEFAULT,
        Some(b"none") => FILES_NONE,
        Some(b"all") => FILES_NONE - 1,
        Some(text) => parse_bytes(text).ok_or_else(|| unreadable(b"CKPT_FILES", text, b"1G, bytes, all or none"))?,
    };
    if let Some(paths) = settings.with_dir {
        write_absolute_list(b"CKPT_WITH_DIR", &mut control.with_dirs, paths)?;
    }
    write_absolute(b"CKPT_DIR", &mut control.dir, settings.dir.unwrap_or(DIR_DEFAULT))?;
    if let Some(path) = settings.log {
        write_absolute(b"CKPT_LOG", &mut control.log, path)?;
    }
    match settings.agent {
        Some(path) => write_absolute(b"CKPT_AGENT", &mut control.agent, path)?,
        None => write_agent_beside_library(&mut control.agent)?,
    }
    if ckpt_wire::text(&control.agent) == executed_path() {
        // Preloaded into everything by /etc/ld.so.preload, an agent would start the next one, and so on.
        let mut reason = Reason::new();
        reason.push(b"this program is ckpt itself");
        return Err(reason);
    }
    write_name(settings.name, &mut control.name);
    Ok(())
}

/// How large memory is stored.
fn apply_method(settings: &Settings<'_>, control: &mut Control) -> Result<(), Reason> {
    control.method = match settings.method {
        None | Some(b"pages") => METHOD_PAGES,
        Some(b"tree") => METHOD_TREE,
        Some(text) => return Err(unreadable(b"CKPT_METHOD", text, b"pages or tree")),
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
        None | Some(b"no") => 0,
        Some(b"yes") => 1,
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
fn write_absolute(variable: &[u8], field: &mut [u8; PATH_BYTES], path: &[u8]) -> Result<(), Reason> {
    let mut reason = Reason::new();
    let written = if path.starts_with(b"/") {
        write_field(field, &[path])
    } else {
        let mut relative = path;
        while let Some(rest) = relative.strip_prefix(b"./") {
            relative = rest;
        }
        let directory_bytes = match sys::working_directory(field) {
            // The kernel says "(unreachable)" in front of a directory outside the process's root.
            Ok(directory) if directory.starts_with(b"/") => directory.len(),
            Ok(_) | Err(_) => {
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
fn write_absolute_list(variable: &[u8], field: &mut [u8; PATH_BYTES], paths: &[u8]) -> Result<(), Reason> {
    let mut end = 0;
    for path in paths.split(|&byte| byte == b':').filter(|path| !path.is_empty()) {
        let mut absolute = [0; PATH_BYTES];
        write_absolute(variable, &mut absolute, path)?;
        let (path, separator): (_, &[u8]) = (ckpt_wire::text(&absolute), if end == 0 { b"" } else { b":" });
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

/// The `ckpt` in the directory that libckpt.so was loaded from.
fn write_agent_beside_library(field: &mut [u8; PATH_BYTES]) -> Result<(), Reason> {
    let mut reason = Reason::new();
    let Some(path) = objects::path_of_this_library().map(CStr::to_bytes) else {
        reason.push(b"CKPT_AGENT: the directory of libckpt.so is not known; set CKPT_AGENT to the ckpt executable");
        return Err(reason);
    };
    let directory_bytes = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    write_absolute(b"CKPT_AGENT", field, path.get(..directory_bytes).unwrap_or_default())?;
    let end = ckpt_wire::text(field).len();
    if field.get_mut(end..).is_some_and(|rest| write_field(rest, &[b"ckpt"])) {
        return Ok(());
    }
    reason.push(b"CKPT_AGENT: the path of libckpt.so is too long");
    Err(reason)
}

/// The user's name for the job, or the file name of the program: of the script, if one was started by its `#!`.
fn write_name(name: Option<&[u8]>, field: &mut [u8; TEXT_BYTES]) {
    let name = name.unwrap_or_else(|| executed_path().rsplit(|&byte| byte == b'/').next().unwrap_or_default());
    // One byte of the field is for the zero behind the name.
    let _ = write_field(field, &[name.get(..TEXT_BYTES - 1).unwrap_or(name)]);
}

/// The path that was given to execve, which the kernel leaves in the process; empty if it did not. /proc/self/exe
/// says nearly the same, and costs 15 microseconds in every process that starts.
fn executed_path() -> &'static [u8] {
    // SAFETY: getauxval reads a table of the process that never changes.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    if path.is_null() {
        return b"";
    }
    // SAFETY: the kernel put a zero-terminated path there, above the stack; programs rename themselves (setproctitle)
    // later than this constructor, and in the memory of their arguments and environment.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// An id that no other job in the store has.
fn random_job() -> u64 {
    let mut bytes = [0; 8];
    if sys::random(&mut bytes) {
        return u64::from_ne_bytes(bytes);
    }
    // Only while the machine boots: time and pid are enough to tell the few jobs of that moment apart.
    sys::seconds_since_1970() << 32 ^ u64::from(sys::getpid().unsigned_abs())
}
