//! `operator new` and `operator delete` of C++, by their mangled names: without them, what asks for an allocation would
//! always be the C++ runtime; and jemalloc and tcmalloc have their own, which do not go by way of `malloc`.
#![allow(non_snake_case, reason = "the names that the C++ compiler gives them")]

use super::shapes::{allocates, frees};

// new, new[]; nothrow; with an alignment; both. The bytes are the first argument.
allocates!(_Znwm, NEW, "rdi");
allocates!(_Znam, NEW_ARRAY, "rdi");
allocates!(_ZnwmRKSt9nothrow_t, NEW_NOTHROW, "rdi");
allocates!(_ZnamRKSt9nothrow_t, NEW_ARRAY_NOTHROW, "rdi");
allocates!(_ZnwmSt11align_val_t, NEW_ALIGNED, "rdi");
allocates!(_ZnamSt11align_val_t, NEW_ARRAY_ALIGNED, "rdi");
allocates!(_ZnwmSt11align_val_tRKSt9nothrow_t, NEW_ALIGNED_NOTHROW, "rdi");
allocates!(_ZnamSt11align_val_tRKSt9nothrow_t, NEW_ARRAY_ALIGNED_NOTHROW, "rdi");
// delete, delete[]; with the size; with an alignment; both; nothrow. The address is the first argument.
frees!(_ZdlPv, DELETE);
frees!(_ZdaPv, DELETE_ARRAY);
frees!(_ZdlPvm, DELETE_SIZED);
frees!(_ZdaPvm, DELETE_ARRAY_SIZED);
frees!(_ZdlPvSt11align_val_t, DELETE_ALIGNED);
frees!(_ZdaPvSt11align_val_t, DELETE_ARRAY_ALIGNED);
frees!(_ZdlPvmSt11align_val_t, DELETE_SIZED_ALIGNED);
frees!(_ZdaPvmSt11align_val_t, DELETE_ARRAY_SIZED_ALIGNED);
frees!(_ZdlPvRKSt9nothrow_t, DELETE_NOTHROW);
frees!(_ZdaPvRKSt9nothrow_t, DELETE_ARRAY_NOTHROW);
frees!(_ZdlPvSt11align_val_tRKSt9nothrow_t, DELETE_ALIGNED_NOTHROW);
frees!(_ZdaPvSt11align_val_tRKSt9nothrow_t, DELETE_ARRAY_ALIGNED_NOTHROW);
