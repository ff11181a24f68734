//! A seccomp filter that a program has added.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// A program in classic BPF that judges system calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Its instructions, [`Filter::INSTRUCTION_BYTES`] each (`struct sock_filter`).
    pub instructions: ByteBuf,
    /// Whether the kernel logs what it forbids (`SECCOMP_FILTER_FLAG_LOG`).
    #[serde(default)]
    pub logs: bool,
}

impl Filter {
    /// Bytes of an instruction.
    pub const INSTRUCTION_BYTES: usize = 8;
    /// The most instructions that the kernel takes (`BPF_MAXINSNS`).
    pub const INSTRUCTIONS_MAX: usize = 4096;

    /// Whether one of its verdicts is `action`, as the kernel numbers them (`SECCOMP_RET_*`).
    pub fn may_return(&self, action: u32) -> bool {
        /// `BPF_RET | BPF_K`: the verdict is in the instruction, as its last word.
        const RETURN_CONSTANT: u16 = 0x06;
        /// `BPF_RET | BPF_A`: it is computed, and may be any.
        const RETURN_COMPUTED: u16 = 0x16;
        self.instructions.as_chunks::<{ Filter::INSTRUCTION_BYTES }>().0.iter().any(|instruction| {
            let [code_low, code_high, _, _, a, b, c, d] = *instruction;
            match u16::from_ne_bytes([code_low, code_high]) {
                RETURN_CONSTANT => u32::from_ne_bytes([a, b, c, d]) & libc::SECCOMP_RET_ACTION_FULL == action,
                code => code == RETURN_COMPUTED,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_found_among_the_instructions() {
        let load_number = [0x20, 0, 0, 0, 0, 0, 0, 0];
        let forbid = [0x06, 0, 0, 0, 1, 0, 0x05, 0];
        let filter = Filter { instructions: ByteBuf::from([load_number, forbid].concat()), logs: false };
        assert!(filter.may_return(libc::SECCOMP_RET_ERRNO));
        assert!(!filter.may_return(libc::SECCOMP_RET_ALLOW));
        assert!(!filter.may_return(libc::SECCOMP_RET_USER_NOTIF));
        let computed = Filter { instructions: ByteBuf::from([0x16, 0, 0, 0, 0, 0, 0, 0]), logs: false };
        assert!(computed.may_return(libc::SECCOMP_RET_USER_NOTIF));
    }
}
