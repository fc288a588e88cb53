#!/bin/sh
# Builds the fake driver: build-fake.sh DIRECTORY makes DIRECTORY/libcuda.so.1. A program that is started with
# LD_LIBRARY_PATH=DIRECTORY finds one GPU. By the name libcuda.so too, which is tried first: on a machine with CUDA's
# development files the real driver would be found by it. More arguments: another folder of kernels, and flags.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
directory=$1 kernels=${2:-$here/../../kernels}
shift; [ $# = 0 ] || shift
# The shim leaves stack frames by longjmp, which the fortified one takes for an error.
g++ -std=c++17 -O2 -U_FORTIFY_SOURCE -shared -fPIC -fvisibility=hidden -pthread -x c++ -I "$kernels" -I "$here/../kernels" "$@" \
    "$here/fake_libcuda.cc" -o "$directory/libcuda.so.1"
ln -sf libcuda.so.1 "$directory/libcuda.so"
