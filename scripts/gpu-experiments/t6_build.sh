#!/usr/bin/env bash
# Compiles the hooks and the programs of T6 into the folder given: t6_build.sh FOLDER [further flags for nvcc].
# Needs nvcc in PATH and gcc; no GPU and no driver.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: t6_build.sh FOLDER [nvcc flags]}
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
# shellcheck source=scripts/gpu-experiments/t6_find.sh
. "$here/t6_find.sh"

header=$(find_header) || { echo "t6_build.sh: no cuda.h next to nvcc" >&2; exit 1; }
flags=(-std=c++17 -O2 -gencode "arch=compute_90,code=sm_90" -Xcompiler -Wall,-Wextra -Werror all-warnings "$@")

# Whether a result is missing or older than a source here.
stale() {
    [ ! -e "$1" ] || [ -n "$(find "$here" -newer "$1" \( -name 't6*' -o -name experiment.h \) -print -quit)" ]
}

build() {
    local name=$1
    shift
    if stale "$out/$name"; then
        "$@" -o "$out/$name"
        echo "built $name"
    fi
}

# A library to link with where there is no driver: the symbols that the object needs, under the driver's name. The
# program finds the real one when it runs.
build_stub() {
    mkdir -p "$out/t6_stub"
    nm -u "$1" | sed -nE 's/^ *U (cu[A-Z].*)$/int \1(void) { return 999; }/p' >"$out/t6_stub/stub.c"
    gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$out/t6_stub/libcuda.so" "$out/t6_stub/stub.c"
}

build t6_hooks.so gcc -shared -fPIC -O2 -Wall -Wextra -Werror -fvisibility=hidden -I"$(dirname "$header")" \
    "$here/t6_hooks.c" -ldl
build t6_runtime nvcc "${flags[@]}" "$here/t6_runtime.cu" -ldl -lpthread
build t6_driver nvcc "${flags[@]}" "$here/t6_driver.cu" -ldl -lpthread

if stale "$out/t6_linked"; then
    nvcc "${flags[@]}" -DT6_LINKED -c "$here/t6_driver.cu" -o "$out/t6_linked.o"
    build_stub "$out/t6_linked.o"
    nvcc "${flags[@]}" "$out/t6_linked.o" -L"$out/t6_stub" -lcuda -ldl -lpthread -o "$out/t6_linked"
    echo "built t6_linked"
fi

# The linker wants the name without a version, which the packages of the runtime lack.
if shared_runtime=$(find_shared_runtime); then
    mkdir -p "$out/t6_stub"
    ln -sf "$shared_runtime" "$out/t6_stub/libcudart.so"
    build t6_runtime_shared nvcc "${flags[@]}" -cudart shared "$here/t6_runtime.cu" -L"$out/t6_stub" -ldl -lpthread
else
    echo "t6_build.sh: no libcudart.so.13, so no program with the shared runtime" >&2
fi
