//! Work in order, and places in that order.

use std::{
    ffi::c_uint,
    ptr,
    sync::{Arc, atomic::Ordering},
};

use super::{
    context::Context,
    entry_points::{Address, Handle},
    error::Result,
    memory::{Buffer, PinnedBuffer},
};

/// A stream that does not wait for the program's default stream.
const NON_BLOCKING: c_uint = 1;

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
        unsafe { context.driver().event_create(&raw mut handle, 0)? };
        Ok(Self { context: context.clone(), handle })
    }

    /// Seconds from an earlier event to this one, both of which have come.
    ///
    /// # Errors
    /// When one of them has not.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: it writes where it is told to; both live.
        unsafe { self.context.driver().event_elapsed(&raw mut milliseconds, earlier.handle, self.handle)? };
        Ok(f64::from(milliseconds) / 1e3)
    }

    /// Returns when what the stream had been given before [`Stream::record`] has been done.
    ///
    /// # Errors
    /// What went wrong in the stream.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives.
        unsafe { self.context.driver().event_synchronize(self.handle) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: it is destroyed once.
        drop(unsafe { self.context.driver().event_destroy(self.handle) });
    }
}

impl Stream {
    /// # Errors
    /// When the context is broken.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: it writes where it is told to.
        unsafe { context.driver().stream_create(&raw mut handle, NON_BLOCKING)? };
        Ok(Self { context: context.clone(), handle })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// # Errors
    /// What went wrong in the stream.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives.
        unsafe { self.context.driver().stream_synchronize(self.handle) }
    }

    /// Lets the event come when all that the stream was given up to now has been done.
    ///
    /// # Errors
    /// When the context is broken.
    pub fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.driver().event_record(event.handle, self.handle) }
    }

    /// What comes next here waits for the event.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.driver().stream_wait(self.handle, event.handle, 0) }
    }

    /// Fills the first bytes of a buffer.
    pub fn fill(&self, buffer: &Buffer, byte: u8, bytes: u64) -> Result<()> {
        assert!(bytes <= buffer.bytes());
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the buffer is as long, and is freed only after work that uses it.
        unsafe { self.context.driver().fill(buffer.address(), byte, bytes as usize, self.handle) }
    }

    /// Copies the first bytes of a buffer to another.
    pub fn copy(&self, to: &Buffer, from: &Buffer, bytes: u64) -> Result<()> {
        assert!(bytes <= to.bytes() && bytes <= from.bytes());
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both are as long, and are freed only after work that uses them.
        unsafe { self.context.driver().copy_within(to.address(), from.address(), bytes as usize, self.handle) }
    }

    /// Copies bytes to the beginning of a buffer. They have been read when this returns.
    pub fn write(&self, to: &Buffer, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= to.bytes());
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.copied().into.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // SAFETY: the buffer is as long; the bytes live until the stream has been waited for.
        unsafe { self.context.driver().copy_in(to.address(), bytes.as_ptr().cast(), bytes.len(), self.handle)? };
        self.wait()
    }

    /// Copies the beginning of a buffer to `bytes`, and waits for it.
    pub fn read(&self, from: &Buffer, bytes: &mut [u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= from.bytes());
        if bytes.is_empty() {
            return self.wait();
        }
        self.context.copied().out.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // SAFETY: both are as long, and nobody else knows of `bytes` until the stream has been waited for.
        unsafe { self.context.driver().copy_out(bytes.as_mut_ptr().cast(), from.address(), bytes.len(), self.handle)? };
        self.wait()
    }

    /// Starts to copy device memory to pinned memory.
    ///
    /// # Safety
    /// Both must stay until the stream has come so far, and nobody touches `to` before; `from` has so many bytes.
    pub unsafe fn start_copy_out(&self, to: &mut PinnedBuffer, from: Address, bytes: usize) -> Result<()> {
        assert!(bytes <= to.len());
        self.context.copied().out.fetch_add(bytes as u64, Ordering::Relaxed);
        // SAFETY: see above.
        unsafe { self.context.driver().copy_out(to.as_mut_ptr().cast(), from, bytes, self.handle) }
    }

    /// Starts to copy pinned memory to device memory.
    ///
    /// # Safety
    /// Both must stay until the stream has come so far, and nobody writes to `from` before; `to` has so many bytes.
    pub unsafe fn start_copy_in(&self, to: Address, from: &PinnedBuffer, bytes: usize) -> Result<()> {
        assert!(bytes <= from.len());
        self.context.copied().into.fetch_add(bytes as u64, Ordering::Relaxed);
        // SAFETY: see above.
        unsafe { self.context.driver().copy_in(to, from.as_ptr().cast(), bytes, self.handle) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // What it was given uses what is freed next.
        drop(self.wait());
        // SAFETY: it is destroyed once.
        drop(unsafe { self.context.driver().stream_destroy(self.handle) });
    }
}
