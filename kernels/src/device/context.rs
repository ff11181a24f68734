//! A device that can be used: its driver, its context, and what is allocated there.
//!
//! Everything here is freed when it is dropped. A failure to free is not reported: it means that the context is broken, which
//! the next call says.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    marker::PhantomData,
    ops::{Deref, DerefMut},
    path::Path,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    entry_points::{Address, EntryPoints, Handle},
    error::{Error, Result},
};

/// A stream that does not wait for the program's default stream.
const NON_BLOCKING: c_uint = 1;
const MULTIPROCESSORS: c_int = 16;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

/// A device, through its primary context, which is the one that programs use.
pub struct Context {
    driver: EntryPoints,
    device: c_int,
    handle: Handle,
    /// Bytes of device memory allocated here.
    used: AtomicU64,
    /// The most that has ever been.
    peak: AtomicU64,
    bytes_max: Option<u64>,
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
        let (used, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(Self { driver, device, handle, used, peak, bytes_max }))
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

    fn take(&self, bytes: u64) -> Result<()> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(bytes_max) = self.bytes_max.filter(|max| used > *max) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Error::Bound { bytes, bytes_max });
        }
        self.peak.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once; whatever was allocated in it held `self`, and is gone.
        drop(unsafe { self.driver.context_release(self.device) });
    }
}

/// Device memory. Its content is undefined at first.
pub struct Buffer {
    context: Arc<Context>,
    address: Address,
    bytes: u64,
}

impl Buffer {
    /// # Errors
    /// When there is not as much, or it may not be taken.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<Self> {
        context.take(bytes)?;
        let mut buffer = Self { context: context.clone(), address: 0, bytes };
        if bytes > 0 {
            let mut address = 0;
            // SAFETY: it writes where it is told to.
            unsafe { context.driver.allocate(&raw mut address, bytes as usize) }
                .map_err(|error| error.of_allocation(bytes))?;
            buffer.address = address;
        }
        Ok(buffer)
    }

    /// Where it is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.address != 0 {
            let _entered = self.context.enter();
            // SAFETY: it was allocated and is freed once. Whoever starts work that uses it waits for the work.
            drop(unsafe { self.context.driver.free(self.address) });
        }
        self.context.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Host memory that the device copies from and to without the CPU.
pub struct PinnedBuffer {
    context: Arc<Context>,
    place: ptr::NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is memory that belongs to one owner.
unsafe impl Send for PinnedBuffer {}
// SAFETY: shared, it can only be read.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// # Errors
    /// When there is not as much.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let mut place = ptr::null_mut();
        // SAFETY: it writes where it is told to.
        unsafe { context.driver.allocate_host(&raw mut place, bytes.max(1), 0)? };
        // SAFETY: it is as long, and nobody else knows of it. Zeros are bytes; what it held is not known to be.
        unsafe { ptr::write_bytes(place.cast::<u8>(), 0, bytes) };
        let place = ptr::NonNull::new(place.cast::<u8>()).unwrap_or(ptr::NonNull::dangling());
        Ok(Self { context: context.clone(), place, bytes })
    }
}

impl Deref for PinnedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: it is as long and was written as a whole. Copies of the device into it are waited for before it is read:
        // whoever starts one sees to that (ring.rs).
        unsafe { std::slice::from_raw_parts(self.place.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PinnedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and it has one owner.
        unsafe { std::slice::from_raw_parts_mut(self.place.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: it was allocated and is freed once.
        drop(unsafe { self.context.driver.free_host(self.place.as_ptr().cast::<c_void>()) });
    }
}

/// Work in order.
pub struct Stream {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// A place in the order of a stream.
pub struct Event {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// # Errors
    /// When the context is broken.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: it writes where it is told to.
        unsafe { context.driver.event_create(&raw mut handle, 0)? };
        Ok(Self { context: context.clone(), handle })
    }

    /// Seconds from an earlier event to this one, both of which have come.
    ///
    /// # Errors
    /// When one of them has not.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: it writes where it is told to; both live.
        unsafe { self.context.driver.event_elapsed(&raw mut milliseconds, earlier.handle, self.handle)? };
        Ok(f64::from(milliseconds) / 1e3)
    }

    /// Returns when what the stream had been given before [`Stream::record`] has been done.
    ///
    /// # Errors
    /// What went wrong in the stream.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives.
        unsafe { self.context.driver.event_synchronize(self.handle) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: it is destroyed once.
        drop(unsafe { self.context.driver.event_destroy(self.handle) });
    }
}

impl Stream {
    /// # Errors
    /// When the context is broken.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: it writes where it is told to.
        unsafe { context.driver.stream_create(&raw mut handle, NON_BLOCKING)? };
        Ok(Self { context: context.clone(), handle })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// # Errors
    /// What went wrong in the stream.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives.
        unsafe { self.context.driver.stream_synchronize(self.handle) }
    }

    /// Lets the event come when all that the stream was given up to now has been done.
    ///
    /// # Errors
    /// When the context is broken.
    pub fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.driver.event_record(event.handle, self.handle) }
    }

    /// What comes next here waits for the event.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.driver.stream_wait(self.handle, event.handle, 0) }
    }

    /// Fills the first bytes of a buffer.
    pub fn fill(&self, buffer: &Buffer, byte: u8, bytes: u64) -> Result<()> {
        assert!(bytes <= buffer.bytes);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the buffer is as long, and is freed only after work that uses it.
        unsafe { self.context.driver.fill(buffer.address, byte, bytes as usize, self.handle) }
    }

    /// Copies the first bytes of a buffer to another.
    pub fn copy(&self, to: &Buffer, from: &Buffer, bytes: u64) -> Result<()> {
        assert!(bytes <= to.bytes && bytes <= from.bytes);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both are as long, and are freed only after work that uses them.
        unsafe { self.context.driver.copy_within(to.address, from.address, bytes as usize, self.handle) }
    }

    /// Copies bytes to the beginning of a buffer. They have been read when this returns.
    pub fn write(&self, to: &Buffer, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= to.bytes);
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the buffer is as long; the bytes live until the stream has been waited for.
        unsafe { self.context.driver.copy_in(to.address, bytes.as_ptr().cast(), bytes.len(), self.handle)? };
        self.wait()
    }

    /// Copies the beginning of a buffer to `bytes`, and waits for it.
    pub fn read(&self, from: &Buffer, bytes: &mut [u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= from.bytes);
        if bytes.is_empty() {
            return self.wait();
        }
        // SAFETY: both are as long, and nobody else knows of `bytes` until the stream has been waited for.
        unsafe { self.context.driver.copy_out(bytes.as_mut_ptr().cast(), from.address, bytes.len(), self.handle)? };
        self.wait()
    }

    /// Starts to copy device memory to pinned memory.
    ///
    /// # Safety
    /// Both must stay until the stream has come so far, and nobody touches `to` before; `from` has so many bytes.
    pub unsafe fn start_copy_out(&self, to: &mut PinnedBuffer, from: Address, bytes: usize) -> Result<()> {
        assert!(bytes <= to.bytes);
        // SAFETY: see above.
        unsafe { self.context.driver.copy_out(to.place.as_ptr().cast(), from, bytes, self.handle) }
    }

    /// Starts to copy pinned memory to device memory.
    ///
    /// # Safety
    /// Both must stay until the stream has come so far, and nobody writes to `from` before; `to` has so many bytes.
    pub unsafe fn start_copy_in(&self, to: Address, from: &PinnedBuffer, bytes: usize) -> Result<()> {
        assert!(bytes <= from.bytes);
        // SAFETY: see above.
        unsafe { self.context.driver.copy_in(to, from.place.as_ptr().cast(), bytes, self.handle) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // What it was given uses what is freed next.
        drop(self.wait());
        // SAFETY: it is destroyed once.
        drop(unsafe { self.context.driver.stream_destroy(self.handle) });
    }
}
