# Sourced by t6_build.sh and t6.sh: where this machine has its parts of CUDA.

# The first of the arguments that is a file; fails when none is.
first_file() {
    local candidate
    for candidate; do
        if [ -f "$candidate" ]; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# Folders that may be the root of a CUDA toolkit: around nvcc, the usual place, and in python's packages.
toolkits() {
    local nvcc
    if nvcc=$(command -v nvcc); then
        dirname "$(dirname "$nvcc")"
        dirname "$(dirname "$(readlink -f "$nvcc")")"
    fi
    echo /usr/local/cuda
    if command -v python3 >/dev/null; then
        python3 -c 'import sys
for folder in sys.path:
    if folder: print(folder + "/nvidia/cu13")' 2>/dev/null || true
    fi
}

# The file of that name below a toolkit, in one of the folders given.
find_in_toolkits() {
    local name=$1 toolkit folder
    shift
    while read -r toolkit; do
        for folder; do
            if first_file "$toolkit/$folder/$name"; then return 0; fi
        done
    done < <(toolkits)
    return 1
}

find_header() { find_in_toolkits cuda.h include targets/x86_64-linux/include; }

find_shared_runtime() { find_in_toolkits libcudart.so.13 lib64 lib targets/x86_64-linux/lib; }
