//! A device that can be used: its driver, its context, and how much memory is taken there.
//!
//! What is made in a context (memory.rs, stream.rs, module.rs) is freed when it is dropped. A failure to free is not reported:
//! it means that the context is broken, which the next call says.

use std::{
    ffi::{CStr, c_char, c_int},
    marker::PhantomData,
    path::Path,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    entry_points::{EntryPoints, Handle, SharingEntryPoints},
    error::{Error, Result},
};

const MULTIPROCESSORS: c_int = 16;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

/// A device, through its primary context, which is the one that programs use.
pub struct Context {
    driver: EntryPoints,
    /// For contexts that memory of other processes is mapped in.
    sharing: Option<SharingEntryPoints>,
    device: c_int,
    handle: Handle,
    /// Bytes of device memory allocated here.
    used: AtomicU64,
    /// The most that has ever been.
    peak: AtomicU64,
    copied: Copied,
    bytes_max: Option<u64>,
}

/// Bytes that were copied so far.
#[derive(Default)]
pub(super) struct Copied {
    /// From the device to the host.
    pub out: AtomicU64,
    /// From the host to the device.
    pub into: AtomicU64,
}

// SAFETY: the driver's functions may be called from any thread, and a context is used from several.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The context is the calling thread's current one; when this goes, what was current before is again.
pub struct Entered<'a> {
    context: &'a Context,
    before: Handle,
    /// Current for this thread, so it stays there.
    _here: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: it was current before.
        drop(unsafe { self.context.driver.context_set(self.before) });
    }
}

impl Context {
    /// The first device of a driver, of whose memory at most `bytes_max` bytes are taken.
    ///
    /// # Errors
    /// Without a driver, or without a device.
    pub fn new(driver: &Path, bytes_max: Option<u64>) -> Result<Arc<Self>> {
        let driver = EntryPoints::load(driver)?;
        let (mut device, mut handle) = (0, ptr::null_mut());
        // SAFETY: each writes where it is told to.
        unsafe {
            driver.init(0)?;
            driver.device_get(&raw mut device, 0)?;
            driver.context_retain(&raw mut handle, device)?;
        }
        Ok(Arc::new(Self::with(driver, None, device, handle, bytes_max)))
    }

    /// The device that another process knows by this UUID, whatever number it has here.
    ///
    /// # Errors
    /// As of [`Self::new`]; [`Error::NoDevice`].
    pub fn of(driver: &Path, uuid: [u8; 16], bytes_max: Option<u64>) -> Result<Arc<Self>> {
        let sharing = SharingEntryPoints::load(driver)?;
        let driver = EntryPoints::load(driver)?;
        let (mut count, mut handle) = (0, ptr::null_mut());
        // SAFETY: each writes where it is told to.
        unsafe {
            driver.init(0)?;
            sharing.device_count(&raw mut count)?;
        }
        let is_meant = |device: &c_int| {
            let mut found = [0; 16];
            // SAFETY: it writes where it is told to.
            unsafe { sharing.device_uuid(&raw mut found, *device) }.is_ok() && found == uuid
        };
        let device = (0..count).find(is_meant).ok_or(Error::NoDevice { uuid })?;
        // SAFETY: it writes where it is told to.
        unsafe { driver.context_retain(&raw mut handle, device)? };
        Ok(Arc::new(Self::with(driver, Some(sharing), device, handle, bytes_max)))
    }

    fn with(
        driver: EntryPoints,
        sharing: Option<SharingEntryPoints>,
        device: c_int,
        handle: Handle,
        bytes_max: Option<u64>,
    ) -> Self {
        let (used, peak, copied) = (AtomicU64::new(0), AtomicU64::new(0), Copied::default());
        Self { driver, sharing, device, handle, used, peak, copied, bytes_max }
    }

    /// Makes this the thread's context for a while.
    ///
    /// # Errors
    /// When the context is broken.
    pub fn enter(&self) -> Result<Entered<'_>> {
        let mut before = ptr::null_mut();
        // SAFETY: the first writes where it is told to; the context lives as long as `self`.
        unsafe {
            self.driver.context_get(&raw mut before)?;
            self.driver.context_set(self.handle)?;
        }
        Ok(Entered { context: self, before, _here: PhantomData })
    }

    pub(super) fn driver(&self) -> &EntryPoints {
        &self.driver
    }

    /// The device's number, and what maps memory of others, if that is possible here.
    pub(super) fn sharing(&self) -> Option<(c_int, &SharingEntryPoints)> {
        self.sharing.as_ref().map(|sharing| (self.device, sharing))
    }

    pub(super) fn copied(&self) -> &Copied {
        &self.copied
    }

    /// Bytes that were copied from the device to the host so far.
    pub fn copied_out_bytes(&self) -> u64 {
        self.copied.out.load(Ordering::Relaxed)
    }

    /// Bytes that were copied from the host to the device so far.
    pub fn copied_in_bytes(&self) -> u64 {
        self.copied.into.load(Ordering::Relaxed)
    }

    /// Memory of the device that nobody uses; of a device that was found [by its UUID](Self::of) alone.
    ///
    /// # Errors
    /// When the context is broken.
    pub fn free_bytes(&self) -> Result<Option<u64>> {
        let Some((_, sharing)) = self.sharing() else { return Ok(None) };
        let _entered = self.enter()?;
        let (mut free, mut total) = (0_usize, 0);
        // SAFETY: it writes where it is told to.
        unsafe { sharing.memory(&raw mut free, &raw mut total)? };
        Ok(Some(free as u64))
    }

    fn attribute(&self, attribute: c_int) -> Result<u32> {
        let mut value = 0;
        // SAFETY: it writes where it is told to.
        unsafe { self.driver.device_attribute(&raw mut value, attribute, self.device)? };
        Ok(value.try_into().unwrap_or(0))
    }

    /// The device's multiprocessors.
    ///
    /// # Errors
    /// When the driver does not know.
    pub fn multiprocessors(&self) -> Result<u32> {
        self.attribute(MULTIPROCESSORS)
    }

    /// What code the device runs: 9, 0 for sm_90.
    ///
    /// # Errors
    /// When the driver does not know.
    pub fn capability(&self) -> Result<(u32, u32)> {
        Ok((self.attribute(CAPABILITY_MAJOR)?, self.attribute(CAPABILITY_MINOR)?))
    }

    /// The device's name and the driver's version (13000 for CUDA 13.0).
    ///
    /// # Errors
    /// When the driver does not know.
    pub fn description(&self) -> Result<(String, u32)> {
        let (mut name, mut version) = ([0; 256], 0);
        // SAFETY: they write where they are told to, the first at most as much as there is.
        unsafe {
            self.driver.device_name(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int - 1, self.device)?;
            self.driver.driver_version(&raw mut version)?;
        }
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, version.try_into().unwrap_or(0)))
    }

    /// Bytes of device memory that are taken now.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The most bytes of device memory that may be taken.
    pub fn bytes_max(&self) -> Option<u64> {
        self.bytes_max
    }

    /// The most bytes of device memory that were ever taken at once.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Takes bytes of device memory into account.
    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(bytes_max) = self.bytes_max.filter(|max| used > *max) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Error::Bound { bytes, bytes_max });
        }
        self.peak.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once; whatever was allocated in it held `self`, and is gone.
        drop(unsafe { self.driver.context_release(self.device) });
    }
}
