//! Lets clients in while the agent is at work, and tells them every second that it is: they may wait for a long time, but not
//! for an agent that says nothing.

use std::io::{BufReader, Error as IoError, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;

use super::address::refuse_strangers;
use super::protocol::{Patient, Reply, Request, receive, send};
use crate::error::{Error, Result};

/// How often those that wait are told that the agent is at work.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// How long a client may take for its request, and leave a reply unread, before it is given up.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// How many clients may wait.
const CLIENTS_MAX: usize = 128;
/// How long nobody is let in after one could not be.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A connection of a client that may ask.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Held while something is said: a line is not broken by another.
    saying: Mutex<()>,
}

impl Client {
    /// What it wants; none if it has gone.
    ///
    /// # Errors
    /// When it says nothing, or nonsense.
    pub fn request(&self) -> Result<Option<Request>> {
        let failed = |source| Error::io("hear", "a client", source);
        self.stream.set_write_timeout(Some(CLIENT_TIMEOUT)).map_err(failed)?;
        receive(&mut BufReader::new(Patient::new(&self.stream, CLIENT_TIMEOUT))).map_err(failed)
    }

    /// Tells it something; false if it does not listen.
    pub fn tell(&self, reply: &Reply) -> bool {
        let _saying = self.saying.lock();
        send(&mut &self.stream, reply).is_ok()
    }

    /// Tells it that the agent is at work, unless it hears something anyway or does not listen.
    fn reassure(&self) {
        let Ok(_saying) = self.saying.try_lock() else { return };
        let mut line = Vec::new();
        if send(&mut line, &Reply::Alive).is_ok() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = nix::sys::socket::send(self.stream.as_raw_fd(), &line, flags);
        }
    }
}

/// Where clients come from.
#[derive(Debug)]
pub struct Usher {
    clients: Receiver<Arc<Client>>,
    bell: PipeReader,
}

impl Usher {
    /// Lets clients in from now on, as long as this process lives.
    ///
    /// # Errors
    /// The kernel's.
    pub fn at(listener: UnixListener) -> Result<Usher> {
        let failed = |source| Error::io("listen to", "clients", source);
        let (bell, rope) = std::io::pipe().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (sender, clients) = channel();
        let door = Door { listener, sender, rope, inside: Vec::new() };
        std::thread::Builder::new().name("usher".to_owned()).spawn(move || door.keep()).map_err(failed)?;
        Ok(Usher { clients, bell })
    }

    /// Readable while a client waits.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The client that has waited longest, once the bell is readable.
    pub fn next(&mut self) -> Option<Arc<Client>> {
        self.bell.read_exact(&mut [0]).ok()?;
        self.clients.recv().ok()
    }
}

struct Door {
    listener: UnixListener,
    sender: Sender<Arc<Client>>,
    rope: PipeWriter,
    inside: Vec<Weak<Client>>,
}

impl Door {
    fn keep(mut self) {
        let mut due = Instant::now();
        loop {
            self.inside.retain(|client| client.strong_count() > 0);
            let left = match self.inside.is_empty() {
                true => PollTimeout::NONE,
                false => {
                    PollTimeout::try_from(due.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::ZERO)
                }
            };
            // Whatever it is that fails: whoever waits is told all the same.
            let _ = poll(&mut [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)], left);
            match self.let_in() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => std::thread::sleep(AFTER_FAILURE),
            }
            if Instant::now() >= due {
                self.inside.iter().filter_map(Weak::upgrade).for_each(|client| client.reassure());
                due = Instant::now() + ALIVE_EVERY;
            }
        }
    }

    fn let_in(&mut self) -> Result<(), IoError> {
        let (stream, _) = self.listener.accept()?;
        if let Err(error) = refuse_strangers(&stream) {
            log::warn!("{error}");
            return Ok(());
        }
        if self.inside.len() >= CLIENTS_MAX {
            return Ok(());
        }
        stream.set_nonblocking(false)?;
        let client = Arc::new(Client { stream, saying: Mutex::new(()) });
        self.inside.push(Arc::downgrade(&client));
        // The agent ends, and so do we.
        let _ = self.sender.send(client);
        self.rope.write_all(&[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_waits_is_told_that_the_agent_is_at_work_until_it_is_served() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut usher = Usher::at(UnixListener::bind(&path).unwrap()).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        let mut reader = BufReader::new(Patient::new(&stream, Duration::from_secs(20)));
        for _ in 0..2 {
            assert!(matches!(receive(&mut reader).unwrap(), Some(Reply::Alive)));
        }
        let client = usher.next().unwrap();
        assert!(client.tell(&Reply::Sealed { id: 7 }));
        drop(client);
        let mut replies = std::iter::from_fn(|| receive(&mut reader).unwrap());
        assert!(replies.any(|reply| matches!(reply, Reply::Sealed { id: 7 })));
        assert!(replies.next().is_none(), "the connection ends when it is served");
    }

    #[test]
    fn a_client_that_says_nothing_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut usher = Usher::at(UnixListener::bind(&path).unwrap()).unwrap();
        let _stream = UnixStream::connect(&path).unwrap();
        assert!(usher.next().unwrap().request().is_err());
    }
}
