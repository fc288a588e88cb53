#!/bin/sh
# Builds the fake driver: build-fake.sh DIRECTORY creates DIRECTORY/libcuda.so.1. A program started with
# LD_LIBRARY_PATH=DIRECTORY finds one GPU. Also creates the name libcuda.so, which is tried first: on a
# machine with CUDA's development files it would otherwise lead to the real driver. Further arguments:
# another directory of kernels, and flags.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
directory=$1 kernels=${2:-$here/../../kernels}
shift; [ $# = 0 ] || shift
# The shim leaves stack frames by longjmp, which the fortified version reports as an error.
g++ -std=c++17 -O2 -U_FORTIFY_SOURCE -shared -fPIC -fvisibility=hidden -pthread -x c++ -I "$kernels" -I "$here/../kernels" "$@" \
    "$here/fake_libcuda.cc" -o "$directory/libcuda.so.1"
ln -sf libcuda.so.1 "$directory/libcuda.so"
