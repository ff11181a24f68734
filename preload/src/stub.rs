//! The stub of libckpt.so; its code is [`ckpt_wire::stub_code`].

use crate::control::STUB_FRAME;

ckpt_wire::stub_code! {
    section: ".text.ckpt_stub",
    start: "ckpt_stub_start",
    end: "ckpt_stub_end",
    resume_end: "ckpt_resume_end",
    before: [],
    frame: sym STUB_FRAME
}

unsafe extern "C" {
    static ckpt_stub_start: u8;
    static ckpt_stub_end: u8;
}

/// First byte of the stub, and first byte behind it.
pub fn bounds() -> (u64, u64) {
    (&raw const ckpt_stub_start as u64, &raw const ckpt_stub_end as u64)
}

/// First byte of the code that resumes a call, which lies behind the stub.
pub fn resume_start() -> u64 {
    &raw const ckpt_stub_end as u64
}
