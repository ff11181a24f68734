//! The `CKPT_*` variables as they stand in the environment the program was started with.

use core::ffi::c_char;

use ckpt_wire::{
    ENV_AGENT, ENV_AGENT_PID, ENV_CHUNK, ENV_DEVICE_BACKING, ENV_DIGEST, ENV_DIR, ENV_FILES, ENV_INTERVAL, ENV_JOB,
    ENV_KEEP, ENV_LOG, ENV_MEMORY, ENV_METHOD, ENV_NAME, ENV_SIGNAL, ENV_TRACK_MIN, ENV_TREE_MIN, ENV_VERIFY_MATCHES,
    ENV_WITH_DIR,
};

/// The values of our variables, each field the one of its name; an empty value counts as none.
#[derive(Default)]
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
    pub files: Option<&'a [u8]>,
    pub with_dir: Option<&'a [u8]>,
}

impl<'a> Settings<'a> {
    /// Picks our variables from the entries; the first of a name counts, as it does for `getenv`.
    pub fn read(entries: Entries<'a>) -> Self {
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
            (ENV_FILES, &mut self.files),
            (ENV_WITH_DIR, &mut self.with_dir),
        ]
        .into_iter()
        .find_map(|(known, slot)| (known.as_bytes() == name).then_some(slot))
    }
}

/// The entries of an environment, `NAME=value` each.
#[derive(Clone, Copy)]
pub struct Entries<'a> {
    next: *const *const c_char,
    lifetime: core::marker::PhantomData<&'a [u8]>,
}

impl Entries<'_> {
    /// The entries of the list at `envp`.
    ///
    /// # Safety
    /// `envp` must be null, or a list of zero-terminated texts that ends with a null pointer; nobody may change
    /// it for the lifetime.
    pub unsafe fn new(envp: *const *const c_char) -> Self {
        Self { next: envp, lifetime: core::marker::PhantomData }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: `next` is within the list, or at its null pointer, by the contract of `new`.
        let entry = unsafe { *self.next };
        if entry.is_null() {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        // SAFETY: an entry is a zero-terminated text that stays for the lifetime, by the contract of `new`.
        Some(unsafe { core::ffi::CStr::from_ptr(entry) }.to_bytes())
    }
}
