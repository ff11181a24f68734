//! The addresses at which the driver has mapped its devices. While it has let them go nothing is there, and what a thread maps
//! meanwhile may come to lie just there; but the driver needs the same addresses again. So they are reserved until then.
//!
//! The keeper alone does this, while the gate is closed.

use crate::shared::Shared;
use crate::sys;

/// Addresses from the first to the one behind the last.
type Range = [usize; 2];

/// As many as are remembered. A process with eight devices has some hundred.
const RANGES_MAX: usize = 4096;

struct Noted {
    /// Mapped when the first is noted.
    ranges: *mut Range,
    count: usize,
}

static NOTED: Shared<Noted> = Shared::new(Noted { ranges: core::ptr::null_mut(), count: 0 });

fn ranges() -> &'static mut [Range] {
    // SAFETY: used by the keeper alone; so many have been written.
    unsafe {
        let noted = &*NOTED.get();
        if noted.ranges.is_null() { &mut [] } else { core::slice::from_raw_parts_mut(noted.ranges, noted.count) }
    }
}

/// Notes where devices are mapped now, as far as /proc says it.
pub fn note() {
    // SAFETY: used by the keeper alone.
    let noted = unsafe { &mut *NOTED.get() };
    noted.count = 0;
    if noted.ranges.is_null() {
        let Ok(room) = sys::map_zeros(RANGES_MAX * size_of::<Range>()) else { return };
        noted.ranges = room.cast();
    }
    let Ok(maps) = sys::of_driver::open(c"/proc/self/maps") else { return };
    let mut line = Line::new();
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = sys::of_driver::read(maps, &mut buffer) {
        for &byte in buffer.iter().take(bytes) {
            if let Some(range) = line.add(byte)
                && noted.count < RANGES_MAX
            {
                // SAFETY: there is room for one more.
                unsafe { noted.ranges.add(noted.count).write(range) };
                noted.count += 1;
            }
        }
    }
    sys::of_driver::close(maps);
}

/// Reserves those at which nothing is mapped.
pub fn take() {
    for range in ranges() {
        let [start, end] = *range;
        if sys::reserve(start, end - start).is_err() {
            // The driver has kept it, or somebody was faster: it is not ours to give back.
            *range = [0; 2];
        }
    }
}

/// Gives them back, for the driver.
pub fn give_back() {
    for &mut [start, end] in ranges() {
        if end != 0 {
            // SAFETY: ours, and nobody can use it.
            unsafe { sys::unmap(start as *mut u8, end - start) };
        }
    }
}

/// A line of /proc/self/maps, as far as it has been read:
/// `START-END PERMISSIONS OFFSET DEVICE INODE PATH`, where only the path has slashes.
struct Line {
    range: Range,
    /// Which field: the start, the end, whatever else.
    field: usize,
    /// The beginning of the path.
    path: [u8; PATH_MAX],
    length: usize,
}

/// So much of a path tells.
const PATH_MAX: usize = 9;

impl Line {
    const fn new() -> Line {
        Line { range: [0; 2], field: 0, path: [0; PATH_MAX], length: 0 }
    }

    /// One more byte; the range, if it was the last one of a line that is of a device.
    fn add(&mut self, byte: u8) -> Option<Range> {
        match byte {
            b'\n' => {
                let line = core::mem::replace(self, Line::new());
                return line.is_of_device().then_some(line.range);
            }
            b'-' | b' ' if self.field < 2 => self.field += 1,
            _ if self.field < 2 => {
                if let Some(number) = self.range.get_mut(self.field) {
                    *number = *number << 4 | (byte as char).to_digit(16).unwrap_or(0) as usize;
                }
            }
            _ if self.length > 0 || byte == b'/' => {
                if let Some(place) = self.path.get_mut(self.length) {
                    *place = byte;
                    self.length += 1;
                }
            }
            _ => {}
        }
        None
    }

    /// Files in /dev/shm are memory.
    fn is_of_device(&self) -> bool {
        self.path.starts_with(b"/dev/") && self.path != *b"/dev/shm/"
    }
}
