//! A file that is written by a thread of its own, in large aligned buffers.
//!
//! The caller fills one buffer while the others are on their way to the disk, so the disk is never waited for while
//! there is something to hash, and the fsync of one file goes on while the next file is written. There are as many
//! buffers as [`BUFFERS`] and no more: who fills them faster than the disk takes them waits.
//!
//! An error of the thread comes back from a later call, at the latest from [`WriteBehind::wait`]. Nothing may be built
//! on the file before that has returned: that its bytes are durable is known only then.

use std::{
    io, mem,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use crate::{PAGE_BYTES, Result, StoreError, encryption::Encryptor, fault::Point, files::Output, pace::Pace};

/// Buffers of a file: one being filled, one being written, and two so that neither waits for the other.
pub(crate) const BUFFERS: usize = 4;

/// The fsync of a shorter file says how long an fsync takes, not how fast the disk is.
const SYNC_MEASURED_BYTES: u64 = 32 << 20;

/// Room for bytes that begins at a multiple of 4096 in memory, so that a file system can take it without a copy.
struct Buffer {
    /// Never grows beyond its first capacity, so its bytes stay where they are.
    room: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Self {
        let mut room: Vec<u8> = Vec::with_capacity(bytes + PAGE_BYTES);
        let start = room.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        room.resize(start, 0);
        Self { room, start, bytes }
    }

    /// Takes as many of `bytes` as there is room for, encrypted where they are to be, and gives back the others.
    fn fill<'a>(&mut self, bytes: &'a [u8], encryptor: Option<&mut Encryptor>) -> io::Result<&'a [u8]> {
        if let Some(encryptor) = encryptor {
            return encryptor.add(&mut self.room, self.start + self.bytes, bytes);
        }
        let (taken, others) = bytes.split_at(bytes.len().min(self.bytes - self.filled().len()));
        self.room.extend_from_slice(taken);
        Ok(others)
    }

    fn filled(&self) -> &[u8] {
        &self.room[self.start..]
    }

    fn clear(&mut self) {
        self.room.truncate(self.start);
    }
}

enum Task {
    Append(Buffer),
    Sync(Point),
}

/// A file being written. When it is dropped, what has been handed over is written still, but not made durable.
pub(crate) struct WriteBehind {
    filling: Buffer,
    /// How many more buffers may be made.
    unmade: usize,
    tasks: Option<Sender<Task>>,
    written: Receiver<Buffer>,
    encryptor: Option<Encryptor>,
    /// Bytes of the buffers that were handed over, and those of them that the file has.
    given_bytes: u64,
    written_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
    path: PathBuf,
}

impl WriteBehind {
    /// Starts the thread. Every write passes `point`. `buffer_bytes` is a multiple of 4096. How fast whole buffers are
    /// written is noted in `pace`.
    pub fn start(mut output: Output, point: Point, buffer_bytes: usize, pace: Arc<Pace>) -> Result<Self> {
        let ((tasks, given), (done, written)) = (channel(), channel());
        let encryptor = output.take_encryptor();
        let buffer_bytes = encryptor.as_ref().map_or(buffer_bytes, |_| Encryptor::buffer_bytes(buffer_bytes));
        let path = output.path();
        let written_bytes = Arc::new(AtomicU64::new(0));
        let counter = written_bytes.clone();
        let work = move || {
            for task in given {
                match task {
                    Task::Append(mut buffer) => {
                        let (begun, bytes) = (Instant::now(), buffer.filled().len());
                        output.append(buffer.filled(), point)?;
                        // The last one is short, and not written in the way that the others are.
                        if bytes == buffer_bytes {
                            pace.note_written(bytes, begun.elapsed());
                        }
                        counter.fetch_add(bytes as u64, Relaxed);
                        buffer.clear();
                        let _ = done.send(buffer); // nobody waits for it when the last ones are written
                    }
                    Task::Sync(point) => {
                        let begun = Instant::now();
                        output.sync(point)?;
                        if counter.load(Relaxed) >= SYNC_MEASURED_BYTES {
                            pace.note_written(0, begun.elapsed());
                        }
                    }
                }
            }
            Ok(())
        };
        let thread = thread::Builder::new().name("ckpt-write".into()).spawn(work).map_err(|source| StoreError::Io {
            path: path.clone(),
            operation: "start a thread for",
            source,
        })?;
        let (filling, unmade) = (Buffer::new(buffer_bytes), BUFFERS - 1);
        let (tasks, thread) = (Some(tasks), Some(thread));
        Ok(Self { filling, unmade, tasks, written, encryptor, given_bytes: 0, written_bytes, thread, path })
    }

    /// Adds bytes at the end.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut others = self.fill(bytes)?;
        while !others.is_empty() {
            let empty = self.empty_buffer()?;
            let full = mem::replace(&mut self.filling, empty);
            self.give(Task::Append(full))?;
            if let Some(encryptor) = &mut self.encryptor {
                encryptor.go_on_at(self.filling.start);
            }
            others = self.fill(others)?;
        }
        Ok(())
    }

    fn fill<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let filled = self.filling.fill(bytes, self.encryptor.as_mut());
        filled.map_err(|source| self.not_encrypted(source))
    }

    fn not_encrypted(&self, source: io::Error) -> StoreError {
        StoreError::Io { path: self.path.clone(), operation: "encrypt", source }
    }

    /// Bytes that still have to find room in the file system.
    pub fn unwritten_bytes(&self) -> u64 {
        self.given_bytes + self.filling.filled().len() as u64 - self.written_bytes.load(Relaxed)
    }

    /// Begins to make all of it durable; [`WriteBehind::wait`] says whether it is. Nothing can be added any more.
    pub fn begin_sync(&mut self, point: Point) -> Result<()> {
        if let Some(mut encryptor) = self.encryptor.take() {
            encryptor.end(&mut self.filling.room).map_err(|source| self.not_encrypted(source))?;
        }
        let last = mem::replace(&mut self.filling, Buffer::new(0));
        self.give(Task::Append(last))?;
        self.give(Task::Sync(point))?;
        self.tasks = None;
        Ok(())
    }

    /// Waits until the thread has done what it was given.
    pub fn wait(mut self) -> Result<()> {
        self.join()
    }

    fn give(&mut self, task: Task) -> Result<()> {
        if let Task::Append(buffer) = &task {
            self.given_bytes += buffer.filled().len() as u64;
        }
        match self.tasks.as_ref().map(|tasks| tasks.send(task)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.error_of_the_thread()),
        }
    }

    fn empty_buffer(&mut self) -> Result<Buffer> {
        if let Ok(buffer) = self.written.try_recv() {
            return Ok(buffer);
        }
        if self.unmade > 0 {
            self.unmade -= 1;
            return Ok(Buffer::new(self.filling.bytes));
        }
        self.written.recv().map_err(|_| self.error_of_the_thread())
    }

    /// The thread ends early only with an error.
    fn error_of_the_thread(&mut self) -> StoreError {
        let joined = self.join();
        joined.err().unwrap_or_else(|| self.ended_early())
    }

    fn ended_early(&self) -> StoreError {
        let source = io::Error::other("the thread that writes it has ended");
        StoreError::Io { path: self.path.clone(), operation: "write", source }
    }

    fn join(&mut self) -> Result<()> {
        self.tasks = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            _ => Err(self.ended_early()),
        }
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        // Whoever drops it removes the file, and its room is given back when the last descriptor is closed.
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        backend::{Memory, Step},
        fault,
        files::Files,
    };

    const BUFFER_BYTES: usize = 8192;

    fn begun(memory: &Memory) -> WriteBehind {
        let output = Files::new(Arc::new(memory.clone())).create("file", fault::PACK_CREATE).unwrap();
        WriteBehind::start(output, fault::PACK_WRITE, BUFFER_BYTES, Arc::default()).unwrap()
    }

    #[test]
    fn pieces_of_any_length_arrive_in_order_in_whole_buffers_and_are_synced_last() {
        let memory = Memory::default();
        let bytes: Vec<u8> = (0..30 * BUFFER_BYTES + 100).map(|n| (n / 3) as u8).collect();
        let (mut file, mut given, mut length) = (begun(&memory), 0, 1);
        while given < bytes.len() {
            let end = bytes.len().min(given + length);
            file.append(&bytes[given..end]).unwrap();
            (given, length) = (end, length * 2 % 50_021);
        }
        file.begin_sync(fault::PACK_SYNC).unwrap();
        file.wait().unwrap();
        assert!(memory.files()["file"] == bytes);
        let journal = memory.journal();
        assert!(matches!(journal.last(), Some(Step::Sync { .. })));
        let whole = |step: &&Step| matches!(step, Step::Append { bytes, .. } if bytes.len() == BUFFER_BYTES);
        assert_eq!(journal.iter().filter(whole).count(), 30);
    }

    #[test]
    fn a_file_that_is_dropped_is_written_but_not_synced() {
        let memory = Memory::default();
        let mut file = begun(&memory);
        file.append(&[1; 3 * BUFFER_BYTES]).unwrap();
        drop(file);
        let appended = memory.journal().iter().filter(|step| matches!(step, Step::Append { .. })).count();
        assert_eq!(appended, 2, "what was handed over is written by the time of the drop");
        assert!(!memory.journal().iter().any(|step| matches!(step, Step::Sync { .. })));
    }
}
