//! The functions of C.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

use super::next::next;
use super::shapes::{AREA_SHIFT, GRANULE_SHIFT, STARTS, allocates, frees, go_on_unless_recorded};
use super::table::{self, AREAS, record};
use crate::hooks::recorded::{self, ALLOCATIONS};

// The bytes asked for are in the register named.
allocates!(malloc, MALLOC, "rdi");
allocates!(valloc, VALLOC, "rdi");
allocates!(pvalloc, PVALLOC, "rdi");
allocates!(memalign, MEMALIGN, "rsi");
allocates!(aligned_alloc, ALIGNED_ALLOC, "rsi");
frees!(free, FREE);
frees!(cfree, CFREE);
next!(CALLOC, c"calloc");
next!(REALLOC, c"realloc");
next!(POSIX_MEMALIGN, c"posix_memalign");

/// `calloc`: a product that overflows is for the allocator to refuse.
// SAFETY (of the name): standing in front of the allocator's symbol is the purpose.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc() {
    naked_asm!(
        ".cfi_startproc",
        "mov rax, rdi",
        "mul rsi",
        "jo 1f",
        "cmp rax, qword ptr [rip + {allocations}]",
        "jae 2f",
        "1:",
        "jmp qword ptr [rip + {next}]",
        "2:",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call qword ptr [rip + {next}]",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rax",
        "mov rdx, qword ptr [rsp]",
        "jmp {record}",
        ".cfi_endproc",
        allocations = sym ALLOCATIONS,
        next = sym CALLOC,
        record = sym record,
    )
}

/// `realloc`.
// SAFETY (of the name): standing in front of the allocator's symbol is the purpose.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc() {
    naked_asm!(
        "cmp rsi, qword ptr [rip + {allocations}]",
        "jae 2f",
        go_on_unless_recorded!(),
        "2:",
        "mov rdx, qword ptr [rsp]",
        "jmp {reallocate}",
        allocations = sym ALLOCATIONS,
        areas = sym AREAS,
        next = sym REALLOC,
        reallocate = sym reallocate,
        area_shift = const AREA_SHIFT,
        granule_shift = const GRANULE_SHIFT,
        starts = const STARTS,
    )
}

/// `posix_memalign`.
// SAFETY (of the name): standing in front of the allocator's symbol is the purpose.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign() {
    naked_asm!(
        "cmp rdx, qword ptr [rip + {allocations}]",
        "jae 2f",
        "jmp qword ptr [rip + {next}]",
        "2:",
        "mov rcx, qword ptr [rsp]",
        "jmp {allocate_aligned}",
        allocations = sym ALLOCATIONS,
        next = sym POSIX_MEMALIGN,
        allocate_aligned = sym allocate_aligned,
    )
}

/// A `realloc` of an allocation that is recorded, or to one that will be. It stays the same allocation.
///
/// # Safety
/// As for `realloc`.
unsafe extern "C" fn reallocate(old: *mut c_void, bytes: usize, call_site: u64) -> *mut c_void {
    type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    // Another thread may have its place before `realloc` comes back.
    let before = table::take(old as u64);
    // SAFETY: the next function of this name has this type.
    let next: Realloc = unsafe { core::mem::transmute(REALLOC.get()) };
    // SAFETY: the caller's word.
    let new = unsafe { next(old, bytes) };
    match before {
        // It failed, and the old one is as it was. (For no bytes, a null says that it was freed.)
        Some(before) if new.is_null() && bytes != 0 => table::put(old as u64, before),
        _ if new.is_null() || !recorded::is_recorded(bytes as u64) => {}
        Some(before) => {
            table::put(new as u64, ckpt_wire::allocations::Allocation { bytes: bytes as u64, call_site, ..before });
        }
        None => {
            record(new as u64, bytes as u64, call_site);
        }
    }
    new
}

/// A `posix_memalign` of a large allocation.
///
/// # Safety
/// As for `posix_memalign`.
unsafe extern "C" fn allocate_aligned(
    allocated: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
    call_site: u64,
) -> c_int {
    type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
    // SAFETY: the next function of this name has this type.
    let next: PosixMemalign = unsafe { core::mem::transmute(POSIX_MEMALIGN.get()) };
    // SAFETY: the caller's word.
    let result = unsafe { next(allocated, alignment, bytes) };
    if result == 0 {
        // SAFETY: where it succeeds, it has written the address.
        record(unsafe { *allocated } as u64, bytes as u64, call_site);
    }
    result
}
