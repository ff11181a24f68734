//! What is said over the agent's socket: one JSON object a line, one request a connection.
//!
//! JSON because a line can be read in a log and a field can be added; nothing here is in a hot path.

use std::io::{BufRead, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ckpt_store::Depth;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::request::{Method, Trigger};

/// What the agent writes to its standard output once it listens.
pub const READY: &[u8] = b"ready\n";

/// Longest line accepted, bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// From the client, once.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Why.
    pub trigger: Trigger,
    /// End the program once the checkpoint is sealed.
    pub kill: bool,
    /// How large memory is stored from now on.
    #[serde(default)]
    pub method: Option<Method>,
    /// How much of the program.
    #[serde(default)]
    pub depth: Depth,
    /// Directories to be captured with all that is in them, beside those that the program's environment names.
    #[serde(default)]
    pub with_dirs: Vec<PathBuf>,
}

/// From the agent, several; `Sealed` or `Failed` is the last.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The program runs on. The id is known although the checkpoint is not sealed yet.
    Resumed {
        /// How long it was stopped.
        stop_ms: f64,
        /// The checkpoint's id.
        id: u64,
    },
    /// Pages are written.
    Writing {
        /// So far.
        done_bytes: u64,
        /// In all.
        total_bytes: u64,
    },
    /// A process is not in the checkpoint that may be of the job.
    LeftOut {
        /// Which, and why, in one line.
        message: String,
    },
    /// The agent is at work.
    Alive,
    /// The checkpoint exists.
    Sealed {
        /// Its id.
        id: u64,
    },
    /// It does not.
    Failed {
        /// Why, in one line.
        message: String,
        /// The exit code for it.
        exit_code: u8,
    },
}

/// The reading side of a connection, which is waited for as long as was said last, however little comes at a time.
#[derive(Debug)]
pub struct Patient<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl<'a> Patient<'a> {
    /// Waits so long from now on.
    pub fn new(stream: &'a UnixStream, within: Duration) -> Patient<'a> {
        Patient { stream, deadline: Instant::now() + within }
    }

    /// Waits so long from now on.
    pub fn wait(&mut self, within: Duration) {
        self.deadline = Instant::now() + within;
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(into).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

/// Sends `message`.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Receives one message; `None` at the end of the connection.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> std::io::Result<Option<T>> {
    let mut line = Vec::new();
    std::io::Read::take(&mut *from, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_through_as_lines() {
        let mut wire = Vec::new();
        let request = Request {
            trigger: Trigger::Command,
            kill: true,
            method: Some(Method::Tree),
            depth: Depth::Data,
            with_dirs: vec!["/a b".into()],
        };
        send(&mut wire, &request).unwrap();
        send(&mut wire, &Reply::Sealed { id: 7 }).unwrap();
        let mut reader = wire.as_slice();
        let request: Request = receive(&mut reader).unwrap().unwrap();
        assert!(request.kill && request.method == Some(Method::Tree) && request.depth == Depth::Data);
        assert_eq!(request.with_dirs, [PathBuf::from("/a b")]);
        assert!(matches!(receive(&mut reader).unwrap(), Some(Reply::Sealed { id: 7 })));
        assert!(receive::<Reply>(&mut reader).unwrap().is_none());
    }

    #[test]
    fn a_request_of_an_older_client_says_nothing_of_methods_and_depths() {
        let request: Request = receive(&mut &b"{\"trigger\":\"signal\",\"kill\":false}\n"[..]).unwrap().unwrap();
        assert_eq!((request.method, request.depth), (None, Depth::Full));
    }

    #[test]
    fn a_message_that_comes_in_drops_is_waited_for_as_long_as_was_said() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let dripping = std::thread::spawn(move || {
            while other.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        let mut reader = std::io::BufReader::new(Patient::new(&one, Duration::from_millis(200)));
        let error = receive::<Reply>(&mut reader).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        drop(one);
        dripping.join().unwrap();
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(receive::<Request>(&mut &b"hello\n"[..]).is_err());
    }
}
