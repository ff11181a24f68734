//! The environment that an agent is started with: every `CKPT_*` variable, resolved where it needs the program's
//! working directory, and PATH. Nothing else: no LD_PRELOAD, and none of the program's secrets.
//!
//! It is copied in the constructor because programs change and overwrite their environment later (setproctitle).

use core::ffi::c_char;

use ckpt_wire::{Control, ENV_AGENT, ENV_DIR, ENV_JOB, ENV_KEY, ENV_LOG, ENV_MARK, ENV_WITH_DIR, PATH_BYTES};

use crate::environment::Entries;
use crate::shared::Shared;
use crate::sys;
use ckpt_wire::settings::text::{Text, write_field};

/// Most entries.
const ENTRIES_MAX: usize = 64;
/// Most bytes of all entries, their zeros included.
const BYTES_MAX: usize = 32 * 1024;

/// The entries as execve wants them. Written by the constructor, constant afterwards.
pub static AGENT_ENVIRONMENT: Shared<AgentEnvironment> = Shared::new(AgentEnvironment {
    bytes: [0; BYTES_MAX],
    used: 0,
    entries: 0,
    pointers: [core::ptr::null(); ENTRIES_MAX + 1],
});

/// A list of pointers, ended by a null, into the bytes in front of it, of which the last are used first: so a usual
/// environment is in one page, that with the control block's head (layout.ld).
#[repr(C)]
pub struct AgentEnvironment {
    bytes: [u8; BYTES_MAX],
    used: usize,
    entries: usize,
    pointers: [*const c_char; ENTRIES_MAX + 1],
}

/// The environment has more of our variables, or longer ones, than there is room for.
pub struct TooLarge;

impl AgentEnvironment {
    /// Copies what the agent needs. Paths and the job's id are taken from the control block, where they are
    /// resolved.
    pub fn fill(&mut self, entries: Entries<'_>, control: &Control) -> Result<(), TooLarge> {
        let resolved = [ENV_DIR, ENV_LOG, ENV_AGENT, ENV_JOB, ENV_MARK, ENV_WITH_DIR];
        for entry in entries {
            let ours = entry.starts_with(b"CKPT_") && !resolved.iter().any(|name| is_variable(entry, name.as_bytes()));
            if let Some(path) = relative_key(entry) {
                self.push_absolute(ENV_KEY, path)?;
            } else if ours || is_variable(entry, b"PATH") {
                self.push(&[entry])?;
            }
        }
        // Most have no log file of their own, and then nothing else looks at that page of the control block.
        let log = entries.into_iter().any(|entry| is_variable(entry, ENV_LOG.as_bytes())).then_some(&control.log);
        let paths = [(ENV_DIR, Some(&control.dir)), (ENV_LOG, log), (ENV_AGENT, Some(&control.agent))];
        for (name, field) in paths.into_iter().filter_map(|(name, field)| Some((name, field?))) {
            let value = ckpt_wire::text(field);
            if !value.is_empty() {
                self.push(&[name.as_bytes(), b"=", value])?;
            }
        }
        let mut mark = Text::<64>::new();
        mark.push_hex(control.mark, 16).push(b"-").push_hex(control.marked_job, 16).push(b"-");
        self.push(&[ENV_MARK.as_bytes(), b"=", mark.push_decimal(control.founder, 1).as_bytes()])?;
        let mut job = Text::<17>::new();
        self.push(&[ENV_JOB.as_bytes(), b"=", job.push_hex(control.job, 16).as_bytes()])
    }

    /// The list for execve.
    pub fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// Pushes a variable that is a path behind the working directory. Without one that can be named it stays as it is.
    fn push_absolute(&mut self, name: &str, path: &[u8]) -> Result<(), TooLarge> {
        let mut directory = [0; PATH_BYTES];
        match sys::working_directory(&mut directory) {
            Ok(directory) => self.push(&[name.as_bytes(), b"=", directory, b"/", path]),
            Err(_) => self.push(&[name.as_bytes(), b"=", path]),
        }
    }

    fn push(&mut self, parts: &[&[u8]]) -> Result<(), TooLarge> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        let end = BYTES_MAX.saturating_sub(self.used);
        let room = end.checked_sub(bytes).and_then(|start| self.bytes.get_mut(start..end)).ok_or(TooLarge)?;
        // The last slot keeps its null.
        let slot =
            self.pointers.get_mut(..ENTRIES_MAX).and_then(|slots| slots.get_mut(self.entries)).ok_or(TooLarge)?;
        if !write_field(room, parts) {
            return Err(TooLarge);
        }
        *slot = room.as_ptr().cast();
        self.entries += 1;
        self.used += bytes;
        Ok(())
    }
}

/// The value of CKPT_KEY, if it is a path that is not absolute.
fn relative_key(entry: &[u8]) -> Option<&[u8]> {
    let value = entry.strip_prefix(ENV_KEY.as_bytes())?.strip_prefix(b"=")?;
    let stays = value.is_empty() || value.starts_with(b"/") || value.starts_with(b"command:");
    (!stays).then_some(value)
}

fn is_variable(entry: &[u8], name: &[u8]) -> bool {
    entry.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&b'='))
}
