//! The functions of the CUDA runtime that allocate, where it is a library of its own: they note where the program called,
//! and go on. What they allocate is recorded when they call the driver.
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
                    "mov rax, qword ptr [rsp]",
                    "mov r11, qword ptr [rip + ckpt_call_sites@gottpoff]",
                    "mov qword ptr fs:[r11 + 8], rax",
                    "mov qword ptr fs:[r11 + 16], rsp",
                    "jmp qword ptr [rip + {next}]",
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
    cudaMalloc3D = MALLOC_3D,
    cudaMallocArray = MALLOC_ARRAY,
    cudaMalloc3DArray = MALLOC_3D_ARRAY,
    cudaMallocMipmappedArray = MALLOC_MIPMAPPED_ARRAY,
    cudaMallocAsync = MALLOC_ASYNC,
    cudaMallocAsync_ptsz = MALLOC_ASYNC_PTSZ,
    cudaMallocFromPoolAsync = MALLOC_FROM_POOL_ASYNC,
    cudaMallocFromPoolAsync_ptsz = MALLOC_FROM_POOL_ASYNC_PTSZ,
}
