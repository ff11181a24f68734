//! The functions of the CUDA runtime that allocate, where it is a library of its own: they note where the program called
//! while the real one runs. What that allocates is recorded when it calls the driver. Only functions all of whose
//! arguments are in registers can be called so; of the others (cudaMalloc3D and the arrays), the runtime itself is what
//! asked.
#![allow(non_snake_case, reason = "the runtime's names")]

use crate::hooks::heap::next;

macro_rules! notes_call_site {
    ($($name:ident = $next:ident),* $(,)?) => {
        $(
            next!($next, match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            });

            // SAFETY (of the name): standing in front of the runtime's symbol is the purpose.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "mov rax, qword ptr [rsp]",
                    "mov r11, qword ptr [rip + ckpt_call_sites@gottpoff]",
                    "mov qword ptr fs:[r11 + 8], rax",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 8",
                    "call qword ptr [rip + {next}]",
                    "add rsp, 8",
                    ".cfi_adjust_cfa_offset -8",
                    "mov r11, qword ptr [rip + ckpt_call_sites@gottpoff]",
                    "mov qword ptr fs:[r11 + 8], 0",
                    "ret",
                    ".cfi_endproc",
                    next = sym $next,
                )
            }
        )*
    };
}

notes_call_site! {
    cudaMalloc = MALLOC,
    cudaMallocManaged = MALLOC_MANAGED,
    cudaMallocHost = MALLOC_HOST,
    cudaHostAlloc = HOST_ALLOC,
    cudaHostRegister = HOST_REGISTER,
    cudaMallocPitch = MALLOC_PITCH,
    cudaMallocArray = MALLOC_ARRAY,
    cudaMallocAsync = MALLOC_ASYNC,
    cudaMallocAsync_ptsz = MALLOC_ASYNC_PTSZ,
    cudaMallocFromPoolAsync = MALLOC_FROM_POOL_ASYNC,
    cudaMallocFromPoolAsync_ptsz = MALLOC_FROM_POOL_ASYNC_PTSZ,
}
