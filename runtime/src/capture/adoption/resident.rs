//! What an adopted program holds for us: a guard page, the control block, the scratch page, the frame, the stub.
//!
//! ```text
//! guard | control block ... | scratch | ... frame | stub ...
//! ---   | rw-                                     | r-x
//! ```
//!
//! Neighbours of the same protection grow together with anonymous memory. The guard and the protections keep the block where
//! it is recognised: at the beginning of a mapping that the stub's follows.

use ckpt_wire::{CONTROL_MAGIC, Control, SCRATCH_BYTES, StubFrame};
use zerocopy::IntoBytes;

const PAGE_BYTES: u64 = 4096;
/// Bytes of the guard.
pub const GUARD_BYTES: u64 = PAGE_BYTES;
/// Bytes of the control block and all up to the scratch page.
const CONTROL_BYTES: u64 = (size_of::<Control>() as u64).next_multiple_of(PAGE_BYTES);
/// Bytes of the frame, for the assembler.
const FRAME_BYTES: u64 = 152;
/// Bytes that can be written: the control block, the scratch page and the page that ends with the frame.
pub const DATA_BYTES: u64 = CONTROL_BYTES + SCRATCH_BYTES as u64 + PAGE_BYTES;
/// Bytes of the stub's page.
pub const CODE_BYTES: u64 = PAGE_BYTES;
/// All of it.
pub const BYTES: u64 = GUARD_BYTES + DATA_BYTES + CODE_BYTES;

const _: () = assert!(size_of::<StubFrame>() as u64 == FRAME_BYTES);

ckpt_wire::stub_code! {
    section: ".text.ckpt_resident",
    start: "ckpt_resident_start",
    end: "ckpt_resident_stub_end",
    resume_end: "ckpt_resident_end",
    before: ["ckpt_resident_frame:", ".skip 152"],
    frame: sym ckpt_resident_frame
}

unsafe extern "C" {
    static ckpt_resident_frame: u8;
    static ckpt_resident_start: u8;
    static ckpt_resident_stub_end: u8;
    static ckpt_resident_end: u8;
}

/// A frame and the stub behind it: they run wherever they lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// Address of the frame.
    pub frame: u64,
}

impl Stub {
    /// Bytes of the frame and the code.
    pub fn bytes() -> u64 {
        FRAME_BYTES + Stub::code().len() as u64
    }

    /// The code, which finds the frame in front of it.
    pub fn code() -> &'static [u8] {
        // SAFETY: both are symbols of the assembly above, in this order in one section, with nothing but code in between.
        unsafe {
            let bytes = (&raw const ckpt_resident_end).offset_from(&raw const ckpt_resident_start);
            debug_assert_eq!((&raw const ckpt_resident_start).offset_from(&raw const ckpt_resident_frame), 152);
            std::slice::from_raw_parts(&raw const ckpt_resident_start, bytes as usize)
        }
    }

    /// Address of the first instruction.
    pub fn start(self) -> u64 {
        self.frame + FRAME_BYTES
    }

    /// Makes `control` lead to the frame and to the stub itself.
    pub fn enter_into(self, control: &mut Control) {
        control.frame = self.frame;
        control.stub_start = self.start();
        control.stub_end = self.start() + Stub::own_bytes();
    }

    /// Makes `control` lead to where calls are resumed, too: threads may be there at any time from now on.
    fn enter_resumption_into(self, control: &mut Control) {
        control.resume_start = self.start() + Stub::own_bytes();
    }

    /// Bytes of the stub without what resumes a call.
    fn own_bytes() -> u64 {
        // SAFETY: both are symbols of the assembly above, in this order.
        unsafe { (&raw const ckpt_resident_stub_end).offset_from(&raw const ckpt_resident_start) as u64 }
    }
}

/// What is written to the memory at `base`, which is zero, but for the first word of the control block: it comes last, and
/// makes the block one.
pub fn content(base: u64, control: &Control) -> (Box<Control>, Stub) {
    let mut control = Box::new(control.clone());
    let data = base + GUARD_BYTES;
    let stub = Stub { frame: data + DATA_BYTES - FRAME_BYTES };
    stub.enter_into(&mut control);
    stub.enter_resumption_into(&mut control);
    control.scratch = data + CONTROL_BYTES;
    control.magic = 0;
    (control, stub)
}

/// The first word of a control block.
pub fn magic() -> &'static [u8] {
    CONTROL_MAGIC.as_bytes()
}

/// Whether the control block at the beginning of a mapping that ends at `end` is one that was written here.
pub fn is_resident(control: &Control, end: u64) -> bool {
    control.magic == CONTROL_MAGIC && control.stub_start == end && control.frame + FRAME_BYTES == end
}
