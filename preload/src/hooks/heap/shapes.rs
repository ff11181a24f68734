//! The assembly of the hooks: a shape for functions that allocate, one for those that free, and the test that `realloc`
//! shares with the latter.
//!
//! rax, rcx and r11 are free to use: no function has more than three arguments.

use ckpt_wire::allocations::{ADDRESSES_END, AREA_BYTES, Area, GRANULE_BYTES};

/// An address shifted right by so much is the number of its area.
pub const AREA_SHIFT: u32 = AREA_BYTES.trailing_zeros();
/// The low 32 bits of an address shifted right by so much are the number of its granule in the area.
pub const GRANULE_SHIFT: u32 = GRANULE_BYTES.trailing_zeros();
/// Areas that there can be. The assembly cuts their numbers to 15 bits: an address that no allocator gives must not lead
/// out of the table.
pub const AREAS_MAX: usize = (ADDRESSES_END / AREA_BYTES) as usize;
const _: () = assert!(AREAS_MAX <= 1 << 15 && AREA_SHIFT == 32);
/// Where the starts are in the entries of an area.
pub const STARTS: usize = core::mem::offset_of!(Area, starts);

/// The name of a function as a C text.
macro_rules! c_name {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    };
}
pub(super) use c_name;

/// Assembly: goes to label 2 if the allocation in rdi is recorded, and on to `next` if it is not. No jump but the last is
/// taken where nothing large is near.
macro_rules! go_on_unless_recorded {
    () => {
        "mov rax, rdi
        shr rax, {area_shift}
        and eax, 0x7fff
        lea rcx, [rip + {areas}]
        mov rax, qword ptr [rcx + 8 * rax]
        test rax, rax
        jnz 3f
        jmp qword ptr [rip + {next}]
        3:
        mov ecx, edi
        shr ecx, {granule_shift}
        cmp qword ptr [rax + 8 * rcx + {starts}], rdi
        je 2f
        jmp qword ptr [rip + {next}]"
    };
}
pub(super) use go_on_unless_recorded;

/// A function that returns an allocation of as many bytes as the register `$bytes` says.
macro_rules! allocates {
    ($name:ident, $next:ident, $bytes:literal) => {
        $crate::hooks::heap::next::next!($next, $crate::hooks::heap::shapes::c_name!($name));

        // SAFETY (of the name): standing in front of the allocator's symbol is the purpose.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                concat!("cmp ", $bytes, ", qword ptr [rip + {allocations}]"),
                "jae 2f",
                "jmp qword ptr [rip + {next}]",
                "2:",
                concat!("push ", $bytes),
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {next}]",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "mov rdi, rax",
                "mov rdx, qword ptr [rsp]",
                "jmp {record}",
                ".cfi_endproc",
                allocations = sym $crate::hooks::recorded::ALLOCATIONS,
                next = sym $next,
                record = sym $crate::hooks::heap::table::record,
            )
        }
    };
}
pub(super) use allocates;

/// A function that frees the allocation in rdi.
macro_rules! frees {
    ($name:ident, $next:ident) => {
        $crate::hooks::heap::next::next!($next, $crate::hooks::heap::shapes::c_name!($name));

        // SAFETY (of the name): standing in front of the allocator's symbol is the purpose.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $crate::hooks::heap::shapes::go_on_unless_recorded!(),
                "2:",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "call {forget}",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp qword ptr [rip + {next}]",
                ".cfi_endproc",
                areas = sym $crate::hooks::heap::table::AREAS,
                next = sym $next,
                forget = sym $crate::hooks::heap::table::forget,
                area_shift = const $crate::hooks::heap::shapes::AREA_SHIFT,
                granule_shift = const $crate::hooks::heap::shapes::GRANULE_SHIFT,
                starts = const $crate::hooks::heap::shapes::STARTS,
            )
        }
    };
}
pub(super) use frees;
