//! The output of a life, while it is being written.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// How long a line may take to come.
const LINE_LIMIT: Duration = Duration::from_secs(60);

/// Where a life's output arrives.
pub enum Output {
    /// In a regular file.
    File(PathBuf),
    /// In memory, read from a pipe or a terminal.
    Stream(Arc<Stream>),
}

/// What a reader thread has read so far.
#[derive(Default)]
pub struct Stream {
    received: Mutex<Received>,
    changed: Condvar,
}

#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    ended: bool,
}

impl Output {
    /// Begins to read a pipe or the master side of a terminal.
    pub fn read_from(source: File) -> Output {
        let stream = Arc::new(Stream::default());
        let filled = Arc::clone(&stream);
        std::thread::spawn(move || filled.fill(source));
        Output::Stream(stream)
    }

    /// Everything printed so far.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Output::File(path) => std::fs::read(path).unwrap_or_default(),
            Output::Stream(stream) => stream.lock().bytes.clone(),
        }
    }

    /// Everything printed so far, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Number of complete lines so far.
    pub fn lines(&self) -> usize {
        count_lines(&self.bytes())
    }

    /// Waits until there are `count` complete lines.
    pub fn wait_for_lines(&self, count: usize) {
        self.wait_for(&format!("{count} lines"), |bytes| count_lines(bytes) >= count);
    }

    /// Waits until a line begins with `start`.
    pub fn wait_for_line(&self, start: &str) {
        self.wait_for(&format!("a line {start:?}"), |bytes| {
            let complete = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
            String::from_utf8_lossy(&bytes[..complete]).lines().any(|line| line.starts_with(start))
        });
    }

    /// Waits until `text` has been printed, anywhere.
    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(&format!("{text:?}"), |bytes| String::from_utf8_lossy(bytes).contains(text));
    }

    /// Waits for `count` more lines than there are.
    pub fn wait_for_more_lines(&self, count: usize) {
        self.wait_for_lines(self.lines() + count);
    }

    /// The same, but for no more than `most` in all: a program that waits for a sign there prints no more.
    pub fn wait_for_more_lines_to(&self, count: usize, most: usize) {
        self.wait_for_lines((self.lines() + count).min(most));
    }

    /// Waits until no process can write any more. For pipes and terminals only.
    pub fn wait_for_the_end(&self, limit: Duration) {
        let Output::Stream(stream) = self else { return };
        let ended = stream.wait_while(limit, |received| !received.ended);
        assert!(ended, "the output did not end within {limit:?}: somebody still holds the other side");
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&[u8]) -> bool) {
        let came = match self {
            Output::File(path) => wait_for_file(path, &holds),
            Output::Stream(stream) => {
                stream.wait_while(LINE_LIMIT, |received| !holds(&received.bytes) && !received.ended);
                holds(&stream.lock().bytes)
            }
        };
        assert!(came, "waited for {what}; the output is:\n{}", self.text());
    }
}

impl Stream {
    fn lock(&self) -> std::sync::MutexGuard<'_, Received> {
        self.received.lock().expect("the reader does not panic")
    }

    fn fill(&self, mut source: File) {
        let mut buffer = vec![0; 65536];
        loop {
            // A terminal whose last writer has gone reports EIO instead of end-of-file.
            let count = source.read(&mut buffer).unwrap_or(0);
            let mut received = self.lock();
            received.bytes.extend_from_slice(&buffer[..count]);
            received.ended = count == 0;
            self.changed.notify_all();
            if count == 0 {
                return;
            }
        }
    }

    /// Waits while `waiting` holds; false after `limit`.
    fn wait_while(&self, limit: Duration, waiting: impl Fn(&Received) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |received| waiting(received));
        !waited.expect("the reader does not panic").1.timed_out()
    }
}

/// Waits for the events of a regular file until its content satisfies `holds`.
fn wait_for_file(path: &Path, holds: &impl Fn(&[u8]) -> bool) -> bool {
    let end = Instant::now() + LINE_LIMIT;
    let events = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).expect("inotify");
    let folder = path.parent().expect("a file lies in a folder");
    // Of what is written, not of what is read: we would wake ourselves.
    let written = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
    events.add_watch(folder, written).expect("a watch");
    while !holds(&std::fs::read(path).unwrap_or_default()) {
        if Instant::now() > end {
            return false;
        }
        let mut polled = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::from(250u16)).expect("poll");
        let _ = events.read_events();
    }
    true
}

fn count_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}
