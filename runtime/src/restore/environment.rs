//! The environment of a program that becomes a copy: what it executes from now on is told which copy that is in, which job, and
//! where its checkpoints go.
//!
//! The list that the C library has is exchanged for one in libckpt.so, with entries in place of those of the first life. A program
//! that passes on an environment of its own making passes on the old entries.

use std::mem::offset_of;
use std::path::Path;

use ckpt_wire::{
    COPY_BYTES, Control, ENV_AGENT_PID, ENV_COPY, ENV_DIR, ENV_MARK, ENVIRONMENT_ENTRIES, Environment, PID_DIGITS,
};
use std::os::unix::ffi::OsStrExt;

use super::process::HalfBuilt;
use crate::error::Result;

/// Bytes of an entry that are looked at: enough for its name.
const NAME_BYTES: usize = 16;
const _: () = assert!(ENV_AGENT_PID.len() < NAME_BYTES && COPY_BYTES > 0);

/// What programs are told that a copy executes.
#[derive(Debug)]
pub struct Told<'a> {
    /// The id of the copy.
    pub copy: &'a str,
    /// The store, if the copy has one.
    pub dir: Option<&'a Path>,
}

/// Exchanges the environment of `process`, whose control block `control` is. Where that has no place for another one (an older
/// libckpt.so, a program without), all stays as it is.
///
/// # Errors
/// When memory of ours in the program cannot be written.
pub fn exchange(process: &HalfBuilt, control: &Control, told: &Told<'_>) -> Result<()> {
    forget_agent(process, control)?;
    if control.environ == 0 || control.environment == 0 {
        return Ok(());
    }
    let Some(mut entries) = entries(process, control) else {
        log::warn!(
            "process {}: its environment is large or odd, and stays: what it executes is not told",
            process.pid()
        );
        return Ok(());
    };
    let replaced = [ENV_COPY, ENV_DIR, ENV_MARK];
    entries.retain(|(_, name)| !replaced.iter().any(|variable| is_of(name, variable)));
    let place = |offset: usize| control.environment + offset as u64;
    let mut add = |offset: usize, room: usize, variable: &str, value: &[u8]| {
        let text = [variable.as_bytes(), b"=", value, b"\0"].concat();
        if text.len() > room {
            return Ok(());
        }
        entries.push((place(offset), [0; NAME_BYTES]));
        process.memory().write(place(offset), &text)
    };
    add(offset_of!(Environment, copy), COPY_BYTES + NAME_BYTES, ENV_COPY, told.copy.as_bytes())?;
    if control.mark != 0 {
        let (mark, job, founder) = (control.mark, control.marked_job, control.founder);
        let text = format!("{mark:016x}-{job:016x}-{founder:0width$}", width = PID_DIGITS);
        add(
            offset_of!(Environment, mark),
            offset_of!(Environment, dir) - offset_of!(Environment, mark),
            ENV_MARK,
            text.as_bytes(),
        )?;
    }
    if let Some(dir) = told.dir {
        let room = size_of::<Environment>() - offset_of!(Environment, dir);
        add(offset_of!(Environment, dir), room, ENV_DIR, dir.as_os_str().as_bytes())?;
    }
    let list: Vec<u8> = entries.iter().map(|(address, _)| *address).chain([0]).flat_map(u64::to_ne_bytes).collect();
    process.memory().write(place(offset_of!(Environment, entries)), &list)?;
    process.memory().write(control.environ, &place(offset_of!(Environment, entries)).to_ne_bytes())
}

/// The agent of the first life is none of the copy's, and may live.
fn forget_agent(process: &HalfBuilt, control: &Control) -> Result<()> {
    let name = format!("{ENV_AGENT_PID}=");
    let Some(start) = control.agent_text.checked_sub(name.len() as u64).filter(|_| control.agent_text != 0) else {
        return Ok(());
    };
    let mut found = vec![0; name.len()];
    // The program may have put something else there since.
    match process.memory().read(start, &mut found) {
        Ok(()) if found == name.as_bytes() => process.memory().write(control.agent_text, &[b'0'; PID_DIGITS]),
        _ => Ok(()),
    }
}

/// The entries that the C library has: where each is, and how it begins. None if there are too many for ours, or they cannot be read.
fn entries(process: &HalfBuilt, control: &Control) -> Option<Vec<(u64, [u8; NAME_BYTES])>> {
    /// Ours are added to them, and a null.
    const MOST: usize = ENVIRONMENT_ENTRIES - 4;
    let number = |address: u64| {
        let mut bytes = [0; 8];
        process.memory().read(address, &mut bytes).ok().map(|()| u64::from_ne_bytes(bytes))
    };
    let list = number(control.environ)?;
    let mut entries = Vec::new();
    // A program may have cleared it.
    if list == 0 {
        return Some(entries);
    }
    loop {
        let entry = number(list.checked_add(8 * entries.len() as u64)?)?;
        if entry == 0 {
            return Some(entries);
        }
        if entries.len() == MOST {
            return None;
        }
        entries.push((entry, beginning(process, entry)?));
    }
}

/// The first bytes of a text, which may be short, and end with a page behind which nothing is mapped.
fn beginning(process: &HalfBuilt, address: u64) -> Option<[u8; NAME_BYTES]> {
    let mut bytes = [0; NAME_BYTES];
    let in_page = (4096 - address % 4096).min(NAME_BYTES as u64) as usize;
    process.memory().read(address, &mut bytes[..in_page]).ok()?;
    if in_page < NAME_BYTES && !bytes[..in_page].contains(&0) {
        process.memory().read(address + in_page as u64, &mut bytes[in_page..]).ok()?;
    }
    Some(bytes)
}

fn is_of(beginning: &[u8], variable: &str) -> bool {
    beginning.strip_prefix(variable.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
}
