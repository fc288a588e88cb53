#!/bin/sh
# Builds a driver whose launches can fail: build-faulty.sh DIRECTORY DRIVER creates
# DIRECTORY/libcuda.so.1, also as libcuda.so, as a wrapper around DRIVER, which is another libcuda.so.1.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# The wrapper links to the real driver under a different name, because the driver's own name refers to
# the wrapper.
behind=libcuda_behind.so.1
: | g++ -shared -fPIC -Wl,-soname,$behind -x c++ - -o "$1/$behind"
g++ -std=c++17 -O2 -Wall -Wextra -Werror -shared -fPIC "$here/faulty_libcuda.cc" -Wl,--no-as-needed "$1/$behind" \
    -Wl,-rpath,'$ORIGIN' -ldl -o "$1/libcuda.so.1"
ln -sf "$2" "$1/$behind"
ln -sf libcuda.so.1 "$1/libcuda.so"
