#!/bin/sh
# Builds the driver whose launches fail: build-faulty.sh DIRECTORY DRIVER makes DIRECTORY/libcuda.so.1, by the name
# libcuda.so too, in front of DRIVER, which is another libcuda.so.1.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# The driver behind is needed by a name that is not its own: its own leads to the one in front.
behind=libcuda_behind.so.1
: | g++ -shared -fPIC -Wl,-soname,$behind -x c++ - -o "$1/$behind"
g++ -std=c++17 -O2 -Wall -Wextra -Werror -shared -fPIC "$here/faulty_libcuda.cc" -Wl,--no-as-needed "$1/$behind" \
    -Wl,-rpath,'$ORIGIN' -ldl -o "$1/libcuda.so.1"
ln -sf "$2" "$1/$behind"
ln -sf libcuda.so.1 "$1/libcuda.so"
