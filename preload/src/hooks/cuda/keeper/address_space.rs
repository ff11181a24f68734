//! What is mapped in this process, read of /proc/self/maps, without a heap. For the keeper, while the gate is closed, and for children
//! of fork.

use crate::errno::Errno;
use crate::sys;

/// So much of a path tells.
const PATH_MAX: usize = 11;

/// A mapping: `START-END PERMISSIONS OFFSET DEVICE INODE PATH`, where only the path has slashes or brackets.
#[derive(Clone, Copy, Default)]
pub struct Mapping {
    /// The first address, and the one behind the last.
    pub range: [usize; 2],
    /// `rwxp`, or `-` for what it has not.
    permissions: [u8; 4],
    /// The beginning of the path; zeros if it has none.
    path: [u8; PATH_MAX],
}

impl Mapping {
    /// Whether a device is mapped there. Files in /dev/shm are memory.
    pub fn is_of_device(&self) -> bool {
        self.path.starts_with(b"/dev/") && !self.path.starts_with(b"/dev/shm/")
    }

    /// Whether one of the driver's is.
    pub fn is_of_driver(&self) -> bool {
        self.path == *b"/dev/nvidia"
    }

    /// Whether it is nothing but addresses that somebody has taken.
    pub fn is_reservation(&self) -> bool {
        self.permissions == *b"---p" && self.path == [0; PATH_MAX]
    }
}

/// Shows each mapping, in the order of the addresses.
///
/// # Errors
/// The kernel's, when they cannot be read.
pub fn for_each(act: &mut dyn FnMut(&Mapping)) -> Result<(), Errno> {
    let maps = sys::of_driver::open(c"/proc/self/maps")?;
    let mut line = Line::default();
    let mut buffer = [0; 4096];
    let outcome = loop {
        match sys::of_driver::read(maps, &mut buffer) {
            Ok(0) => break Ok(()),
            Ok(bytes) => buffer.iter().take(bytes).filter_map(|&byte| line.add(byte)).for_each(|it| act(&it)),
            Err(error) => break Err(error),
        }
    };
    sys::of_driver::close(maps);
    outcome
}

/// A line of the file, as far as it has been read.
#[derive(Default)]
struct Line {
    mapping: Mapping,
    /// Which field: the start, the end, the permissions, whatever else.
    field: usize,
    /// How much of that there is, of the permissions and of the path.
    length: usize,
}

const PERMISSIONS: usize = 2;

impl Line {
    /// One more byte; the mapping, if it was the last one of its line.
    fn add(&mut self, byte: u8) -> Option<Mapping> {
        let is_path = self.mapping.path != [0; PATH_MAX] || matches!(byte, b'/' | b'[');
        match byte {
            b'\n' => return Some(core::mem::take(self).mapping),
            _ if self.field > PERMISSIONS && is_path => Self::put(&mut self.mapping.path, &mut self.length, byte),
            b'-' | b' ' if self.field < PERMISSIONS => self.field += 1,
            b' ' if self.field == PERMISSIONS => (self.field, self.length) = (PERMISSIONS + 1, 0),
            _ if self.field == PERMISSIONS => Self::put(&mut self.mapping.permissions, &mut self.length, byte),
            _ => {
                if let Some(number) = self.mapping.range.get_mut(self.field) {
                    *number = *number << 4 | (byte as char).to_digit(16).unwrap_or(0) as usize;
                }
            }
        }
        None
    }

    fn put(into: &mut [u8], length: &mut usize, byte: u8) {
        if let Some(place) = into.get_mut(*length) {
            *place = byte;
            *length += 1;
        }
    }
}
