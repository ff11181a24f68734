//! News from an agent to the `ckpt run` that has started it: the beginning of each checkpoint, and its outcome.
//!
//! Nothing depends on them: an agent writes into a pipe that it never waits for, and an agent that takes the place of another has
//! no such pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::{Deserialize, Serialize};

/// Where it is told.
static LISTENER: OnceLock<File> = OnceLock::new();

/// How long a checkpoint may take to be written behind the program's end until that is said.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long news may be on their way. An agent that has nothing to do any more ends before that, and they with it.
const GRACE: Duration = Duration::from_millis(100);

/// A piece of news, a line of JSON each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// A checkpoint is being taken.
    Begun,
    /// It is sealed.
    Sealed {
        /// Its number.
        id: u64,
    },
    /// A sealed checkpoint lacks pages of files, which are being stored.
    Incomplete,
    /// All sealed checkpoints are complete, or stay as they are.
    Complete,
    /// There is none, and whoever has asked for it knows, or the program has ended before.
    Over,
    /// It has failed, and no command has asked for it.
    Failed {
        /// Why.
        message: String,
    },
}

/// From now on news are told to whoever reads this process's standard output, if that is a pipe.
pub fn begin() {
    let Ok(pipe) = std::io::stdout().as_fd().try_clone_to_owned().map(File::from) else { return };
    let is_pipe = pipe.metadata().is_ok_and(|about| std::os::unix::fs::FileTypeExt::is_fifo(&about.file_type()));
    if is_pipe && fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok() {
        let _ = LISTENER.set(pipe);
    }
}

/// Tells it, if somebody listens.
pub fn tell(news: &News) {
    if let (Some(mut listener), Ok(mut line)) = (LISTENER.get(), serde_json::to_vec(news)) {
        line.push(b'\n');
        // Who does not read misses it.
        let _ = listener.write_all(&line);
    }
}

/// What has been heard.
#[derive(Debug)]
pub struct Heard(Receiver<News>);

impl Heard {
    /// Listens to `pipe` on a thread, and says why checkpoints fail, each reason once after the other. Call it when nothing is
    /// forked any more.
    pub fn from(pipe: impl Read + Send + 'static) -> Heard {
        let (sender, receiver) = mpsc::channel();
        let listen = move || {
            let mut said = String::new();
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                // The first line says that the agent is there.
                let Ok(news) = serde_json::from_str::<News>(&line) else { continue };
                if let News::Failed { message } = &news
                    && *message != said
                {
                    crate::say!("no checkpoint: {message}");
                    said.clone_from(message);
                }
                if sender.send(news).is_err() {
                    break;
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("news".to_owned()).spawn(listen) {
            log::warn!("what becomes of checkpoints is not told: {error}");
        }
        Heard(receiver)
    }

    /// Behind the program's end: waits until a checkpoint that is being written is there, and sums up what has failed.
    pub fn to_its_end(self) {
        let mut sum = Sum::default();
        let mut patience = PATIENCE;
        loop {
            let is_busy = sum.is_writing || sum.is_completing;
            match self.0.recv_timeout(if is_busy { patience } else { GRACE }) {
                Ok(news) => sum.add(news),
                Err(RecvTimeoutError::Timeout) if is_busy => {
                    crate::say!("the program has ended; {} still being written", sum.what_is_written());
                    patience = Duration::MAX;
                }
                Err(_) => break,
            }
        }
        if let Some(text) = sum.text() {
            crate::say!("{text}");
        }
    }
}

#[derive(Default)]
struct Sum {
    is_writing: bool,
    is_completing: bool,
    failed: u64,
    newest: Option<u64>,
    /// Whether the last one has failed.
    ends_with_failure: bool,
}

impl Sum {
    fn add(&mut self, news: News) {
        match news {
            News::Incomplete => self.is_completing = true,
            News::Complete => self.is_completing = false,
            _ => self.is_writing = news == News::Begun,
        }
        match news {
            News::Begun | News::Over | News::Incomplete | News::Complete => {}
            News::Sealed { id } => (self.newest, self.ends_with_failure) = (Some(id), false),
            News::Failed { .. } => (self.failed, self.ends_with_failure) = (self.failed + 1, true),
        }
    }

    fn what_is_written(&self) -> &'static str {
        match self.is_writing {
            true => "its last checkpoint is",
            false => "files that belong to its last checkpoint are",
        }
    }

    /// What to say at the end: nothing if the last one was sealed.
    fn text(&self) -> Option<String> {
        let newest = self.newest.map_or("none is sealed".to_owned(), |id| format!("the newest that is sealed is {id}"));
        self.ends_with_failure.then(|| format!("{} checkpoints of this program have failed, {newest}", self.failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_at_the_end_is_summed_up() {
        let mut sum = Sum::default();
        assert_eq!(sum.text(), None);
        sum.add(News::Begun);
        assert!(sum.is_writing);
        sum.add(News::Failed { message: "x".to_owned() });
        assert!(!sum.is_writing);
        assert_eq!(sum.text().as_deref(), Some("1 checkpoints of this program have failed, none is sealed"));
        sum.add(News::Sealed { id: 4 });
        assert_eq!(sum.text(), None);
        sum.add(News::Incomplete);
        sum.add(News::Begun);
        sum.add(News::Over);
        assert!(sum.is_completing && !sum.is_writing);
        sum.add(News::Complete);
        assert!(!sum.is_completing);
    }

    #[test]
    fn an_end_without_a_word_is_not_waited_for() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"ready\n\"begun\"\n").unwrap();
        drop(writer);
        Heard::from(reader).to_its_end();
    }
}
