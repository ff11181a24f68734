//! Which stream stands for which descriptor.
//!
//! 0, 1 and 2 are the streams of the same number. For what the program has above 2 a terminal is better than none, and
//! one that can be read where it read, or written where it wrote, is better than another.

use super::streams::Streams;
use crate::image::{Descriptor, FileKind, Objects, OpenFile, ProcessImage};

/// What stands for a descriptor that led outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlet {
    /// The stream, 0 to 2; the lowest where several are one open file description.
    pub stream: usize,
    /// It was `/dev/tty`, and is opened again if that leads somewhere; the stream stands for it otherwise.
    pub own_terminal: bool,
}

impl Outlet {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// A number for it below [`Outlet::COUNT`].
    pub fn place(self) -> usize {
        if self.own_terminal { Outlet::COUNT - 1 } else { self.stream }
    }
}

/// The outlets of all descriptors of `image`, in their order.
pub fn of(image: &ProcessImage, objects: &Objects, streams: &Streams) -> Vec<Option<Outlet>> {
    let outlet = |descriptor: &Descriptor| {
        let file = objects.files.get(descriptor.file as usize)?;
        let FileKind::Standard { stream, was } = &file.kind else { return None };
        let above = descriptor.number > 2;
        let stream = if above { substitute(*stream as usize, file, streams) } else { descriptor.number as usize };
        let own_terminal = streams.own && above && was == b"/dev/tty";
        Some(Outlet { stream: streams.first_alike(stream), own_terminal })
    };
    image.descriptors.iter().map(outlet).collect()
}

/// The stream for a number above 2, which shared `recorded` with one of the three, or was like it.
fn substitute(recorded: usize, file: &OpenFile, streams: &Streams) -> usize {
    let good = |&place: &usize| streams.is_terminal(place) && streams.allows(place, file.flags);
    let was_terminal = matches!(&file.kind, FileKind::Standard { was, .. } if was.starts_with(b"/dev/"));
    if !was_terminal {
        return recorded;
    }
    let by_direction = if file.flags & libc::O_ACCMODE == libc::O_RDONLY { 0 } else { 1 };
    [recorded, 0, 1, 2].into_iter().find(good).unwrap_or(by_direction)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::restore::host::Machine;
    use crate::restore::sample::{self, ScratchDir};

    fn outside(stream: i32, was: &[u8], flags: i32) -> OpenFile {
        OpenFile { kind: FileKind::Standard { stream, was: was.to_vec() }, flags }
    }

    #[test]
    fn each_number_has_its_own_stream_and_what_is_above_2_one_of_its_direction() {
        let dir = ScratchDir::new();
        let file = Arc::new(File::create(dir.path().join("output")).unwrap());
        let streams = Streams::to_file(file).unwrap();
        let mut image = sample::process(&Machine::this().unwrap());
        let files = vec![
            outside(0, b"/dev/pts/3", libc::O_RDWR),
            outside(0, b"/dev/tty", libc::O_RDONLY),
            outside(1, b"pipe:[5]", libc::O_WRONLY),
            OpenFile { kind: FileKind::EventFd { count: 0, semaphore: false }, flags: libc::O_RDWR },
        ];
        let numbers = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 3), (9, 0), (10, 2)];
        image.descriptors =
            numbers.map(|(number, file)| Descriptor { number, file, close_on_exec: false }).into_iter().collect();
        let found: Vec<_> = of(&image, &Objects { files, ..Objects::default() }, &streams)
            .into_iter()
            .map(|outlet| outlet.map(Outlet::place))
            .collect();
        // Output and errors are one file here.
        assert_eq!(found, [Some(0), Some(1), Some(1), Some(0), None, Some(1), Some(1)]);
    }
}
