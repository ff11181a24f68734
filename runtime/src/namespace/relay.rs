//! What a process of another user says, passed on line by line, as long as it says anything.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Error, Result};
use crate::units::printable;

/// The longest line that is waited for in one piece.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Passes on what the child, a process of `user`, writes to its pipes, until both are closed; false if it is silent for so long. What it has not as a
/// pipe is not looked at.
///
/// # Errors
/// The kernel's.
pub fn to_the_end(child: &mut Child, user: u32, silence: Duration) -> Result<bool> {
    let (stdout, stderr) = (child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from));
    let mut stdout = Outlet::new(stdout, Box::new(std::io::stdout()), String::new());
    let mut stderr = Outlet::new(stderr, Box::new(std::io::stderr()), format!("user {user}: "));
    let mut deadline = Instant::now() + silence;
    loop {
        let open: Vec<&mut Outlet> = [&mut stdout, &mut stderr].into_iter().filter(|outlet| outlet.is_open()).collect();
        if open.is_empty() {
            return Ok(true);
        }
        let left =
            PollTimeout::try_from(deadline.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::MAX);
        let mut events: Vec<PollFd<'_>> = open.iter().filter_map(|outlet| outlet.event()).collect();
        match poll(&mut events, left) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(source) => return Err(Error::io("wait for", "what ckpt says", source)),
        }
        let readable: Vec<bool> = events.iter().map(|event| event.any() == Some(true)).collect();
        drop(events);
        for (outlet, _) in open.into_iter().zip(readable).filter(|(_, readable)| *readable) {
            outlet.pass_on();
            deadline = Instant::now() + silence;
        }
    }
}

struct Outlet {
    from: Option<File>,
    to: Box<dyn Write>,
    /// Before each line.
    speaker: String,
    line: Vec<u8>,
}

impl Outlet {
    fn new(from: Option<OwnedFd>, to: Box<dyn Write>, speaker: String) -> Outlet {
        Outlet { from: from.map(File::from), to, speaker, line: Vec::new() }
    }

    fn is_open(&self) -> bool {
        self.from.is_some()
    }

    fn event(&self) -> Option<PollFd<'_>> {
        self.from.as_ref().map(|from| PollFd::new(from.as_fd(), PollFlags::POLLIN))
    }

    /// Passes on what is there.
    fn pass_on(&mut self) {
        let mut part = [0; 4096];
        let bytes = self.from.as_mut().map_or(0, |from| from.read(&mut part).unwrap_or(0));
        if bytes == 0 {
            self.from = None;
            self.end_line();
        }
        for &byte in &part[..bytes] {
            match byte {
                b'\n' => self.end_line(),
                byte => self.line.push(byte),
            }
            if self.line.len() >= LINE_BYTES_MAX {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            // Whoever has closed our output does not want it.
            let _ = writeln!(self.to, "{}{}", self.speaker, printable(&String::from_utf8_lossy(&line)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::{Arc, Mutex};

    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_passed_on_without_what_a_terminal_obeys_and_empty_ones_are_not() {
        let mut child = shell("printf '\\n\\033]0;PWNED\\007one\\n\\n2'");
        let written = Written::default();
        let mut outlet =
            Outlet::new(child.stdout.take().map(OwnedFd::from), Box::new(written.clone()), "he: ".to_owned());
        while outlet.is_open() {
            outlet.pass_on();
        }
        child.wait().unwrap();
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "he: \u{fffd}]0;PWNED\u{fffd}one\nhe: 2\n");
    }

    #[test]
    fn one_that_says_nothing_is_given_up_and_one_that_ends_is_not() {
        let mut silent = shell("exec sleep 60");
        assert!(!to_the_end(&mut silent, 7, Duration::from_millis(100)).unwrap());
        silent.kill().unwrap();
        silent.wait().unwrap();
        let mut brief = shell("exit 3");
        assert!(to_the_end(&mut brief, 7, Duration::from_secs(20)).unwrap());
        assert_eq!(brief.wait().unwrap().code(), Some(3));
    }
}
