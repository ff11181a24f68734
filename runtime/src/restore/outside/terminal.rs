//! What the program regains of a terminal, and what it must be told about it.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::unistd::tcgetpgrp;

use super::outlets::Outlet;
use super::streams::Streams;
use crate::image::ProcessImage;
use crate::tty;

/// The terminal that descriptors of the program lead to after the restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regained {
    /// Whether it is the one that controls this process, so that it will control the program.
    pub controls: bool,
    /// Rows and columns, where somebody has said.
    size: Option<(u16, u16)>,
}

impl Regained {
    /// By those descriptors of `image` that have an outlet.
    pub fn by(image: &ProcessImage, streams: &Streams, outlets: &[Option<Outlet>]) -> Regained {
        if image.terminal.is_none() {
            return Regained::default();
        }
        let mut regained = Regained::default();
        for outlet in outlets.iter().flatten() {
            let found = if outlet.own_terminal { own_terminal() } else { of(&streams.stream(outlet.stream)) };
            match found {
                Some(found) if found.controls => return found,
                Some(found) if regained.size.is_none() => regained = found,
                _ => {}
            }
        }
        regained
    }

    /// Whether the program is to get SIGWINCH: the size is another one, or it is a program that works at the terminal,
    /// which shows nothing of it yet.
    pub fn is_news_for(&self, image: &ProcessImage) -> bool {
        let Some(before) = &image.terminal else { return false };
        let is_to_be_drawn = self.controls && before.modes.is_some();
        is_to_be_drawn || self.size.is_some_and(|size| size != (before.rows, before.columns))
    }
}

/// None if it is no terminal.
fn of(stream: &impl AsFd) -> Option<Regained> {
    let size = tty::size(stream).ok()?;
    // Only for a terminal that controls us do we hear of its foreground.
    Some(Regained { controls: tcgetpgrp(stream).is_ok(), size: Some(size).filter(|&size| size != (0, 0)) })
}

fn own_terminal() -> Option<Regained> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOCTTY).open("/dev/tty");
    opened.ok().and_then(|terminal| of(&terminal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{TerminalImage, TerminalModes};
    use crate::restore::host::Machine;
    use crate::restore::sample;

    #[test]
    fn a_program_hears_of_another_size_and_one_that_works_at_its_terminal_in_any_case() {
        let mut image = sample::process(&Machine::this().unwrap());
        let regained = |controls, size| Regained { controls, size };
        assert!(!regained(true, Some((24, 80))).is_news_for(&image));
        let was = b"/dev/pts/3".to_vec();
        let before = TerminalImage { was, controlling: true, modes: None, rows: 24, columns: 80, foreground: None };
        image.terminal = Some(before);
        assert!(!regained(true, Some((24, 80))).is_news_for(&image));
        assert!(!regained(false, None).is_news_for(&image));
        assert!(regained(false, Some((25, 80))).is_news_for(&image));
        let modes = TerminalModes { input: 0, output: 0, local: 0, characters: Vec::new() };
        image.terminal.as_mut().unwrap().modes = Some(modes);
        assert!(regained(true, Some((24, 80))).is_news_for(&image));
        assert!(!regained(false, Some((24, 80))).is_news_for(&image));
    }
}
