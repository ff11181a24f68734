//! The `CKPT_*` variables of the environment that a program was started with, and what they mean.
//!
//! libckpt.so reads them inside the program; for a program that it is not loaded into, the agent reads them from outside.

#![allow(clippy::result_large_err, reason = "a reason of 128 bytes is returned once, and nothing is allocated")]

pub mod numbers;
pub mod signals;
pub mod text;

mod apply;

pub use apply::{Hooks, ITSELF, Reason, Surroundings, apply, parse_mark};

use crate::{
    ENV_AGENT, ENV_AGENT_PID, ENV_CHUNK, ENV_CONFINEMENT, ENV_COPY, ENV_DEVICE_BACKING, ENV_DEVICE_WAIT, ENV_DIGEST,
    ENV_DIR, ENV_FILES, ENV_INTERVAL, ENV_JOB, ENV_KEEP, ENV_LOG, ENV_MANAGED_BACKING, ENV_MARK, ENV_MEMORY,
    ENV_METHOD, ENV_NAME, ENV_SIGNAL, ENV_TRACK_MIN, ENV_TREE_MIN, ENV_VERIFY_MATCHES, ENV_WITH_DIR,
};

/// The values of our variables, each field the one of its name; an empty value counts as none.
#[derive(Default)]
#[expect(missing_docs, reason = "the names of the variables say it all")]
pub struct Settings<'a> {
    pub dir: Option<&'a [u8]>,
    pub signal: Option<&'a [u8]>,
    pub interval: Option<&'a [u8]>,
    pub memory: Option<&'a [u8]>,
    pub agent: Option<&'a [u8]>,
    pub log: Option<&'a [u8]>,
    pub name: Option<&'a [u8]>,
    pub job: Option<&'a [u8]>,
    pub agent_pid: Option<&'a [u8]>,
    pub keep: Option<&'a [u8]>,
    pub digest: Option<&'a [u8]>,
    pub method: Option<&'a [u8]>,
    pub chunk: Option<&'a [u8]>,
    pub tree_min: Option<&'a [u8]>,
    pub verify_matches: Option<&'a [u8]>,
    pub track_min: Option<&'a [u8]>,
    pub device_backing: Option<&'a [u8]>,
    pub managed_backing: Option<&'a [u8]>,
    pub device_wait: Option<&'a [u8]>,
    pub files: Option<&'a [u8]>,
    pub with_dir: Option<&'a [u8]>,
    pub mark: Option<&'a [u8]>,
    pub confinement: Option<&'a [u8]>,
    pub copy: Option<&'a [u8]>,
}

impl<'a> Settings<'a> {
    /// Picks our variables from the entries; the first of a name counts, as it does for `getenv`.
    pub fn read(entries: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut settings = Self::default();
        for entry in entries.filter(|entry| entry.starts_with(b"CKPT_")) {
            let Some(at) = entry.iter().position(|&byte| byte == b'=') else { continue };
            let (Some(name), Some(value)) = (entry.get(..at), entry.get(at + 1..)) else { continue };
            if let Some(slot) = settings.slot(name)
                && slot.is_none()
                && !value.is_empty()
            {
                *slot = Some(value);
            }
        }
        settings
    }

    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        [
            (ENV_DIR, &mut self.dir),
            (ENV_SIGNAL, &mut self.signal),
            (ENV_INTERVAL, &mut self.interval),
            (ENV_MEMORY, &mut self.memory),
            (ENV_AGENT, &mut self.agent),
            (ENV_LOG, &mut self.log),
            (ENV_NAME, &mut self.name),
            (ENV_JOB, &mut self.job),
            (ENV_AGENT_PID, &mut self.agent_pid),
            (ENV_KEEP, &mut self.keep),
            (ENV_DIGEST, &mut self.digest),
            (ENV_METHOD, &mut self.method),
            (ENV_CHUNK, &mut self.chunk),
            (ENV_TREE_MIN, &mut self.tree_min),
            (ENV_VERIFY_MATCHES, &mut self.verify_matches),
            (ENV_TRACK_MIN, &mut self.track_min),
            (ENV_DEVICE_BACKING, &mut self.device_backing),
            (ENV_MANAGED_BACKING, &mut self.managed_backing),
            (ENV_DEVICE_WAIT, &mut self.device_wait),
            (ENV_FILES, &mut self.files),
            (ENV_WITH_DIR, &mut self.with_dir),
            (ENV_MARK, &mut self.mark),
            (ENV_CONFINEMENT, &mut self.confinement),
            (ENV_COPY, &mut self.copy),
        ]
        .into_iter()
        .find_map(|(known, slot)| (known.as_bytes() == name).then_some(slot))
    }
}
