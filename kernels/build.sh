#!/usr/bin/env bash
# Builds kernels/warpcrypt.fatbin, kernels/hash.fatbin and kernels/manifest.json, and the fatbins and
# manifest of the lab in benches/lab/kernels. All are committed, so that building the crates needs no
# CUDA.
# --check: builds into a temporary folder instead and fails if the committed files differ.
# --fetch: only installs the compiler. This can fail because of the network and can be repeated.
# Needs Linux on x86-64, Python with venv, and g++. The compiler comes from the package index, pinned by
# hash.
set -euo pipefail
cd "$(dirname "$0")"

flags=(-std=c++17 -O3 -fatbin -Xfatbin=-compress-all --compress-mode=size)
for target in 80 89 90 100; do
    flags+=(-gencode "arch=compute_$target,code=sm_$target")
done
# PTX for devices between and after those.
flags+=(-gencode arch=compute_80,code=compute_80)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/warpcrypt/nvcc-$(sha256sum requirements.txt | cut -c1-16)
if [ ! -e "$cache/complete" ]; then
    rm -rf "$cache"
    python3 -m venv "$cache"
    "$cache/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes -r requirements.txt
    touch "$cache/complete"
fi
[ "${1:-}" = --fetch ] && exit
nvcc=$(echo "$cache"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)

# $1: output folder for the manifest and the fatbins.
build() {
    local source
    for source in *.cu; do
        "$nvcc" "${flags[@]}" "$source" -o "$1/${source%.cu}.fatbin"
    done
    python3 - "$1" "$("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p')" "${flags[*]}" <<'END'
import glob, hashlib, json, sys

folder, compiler, flags = sys.argv[1:]
digest = lambda path: hashlib.sha3_256(open(path, "rb").read()).hexdigest()
sources = sorted(glob.glob("*.cu") + glob.glob("*.cuh") + ["requirements.txt"])
manifest = {
    "compiler": "nvcc " + compiler,
    "flags": flags,
    "digest": "SHA3-256",
    "sources": {path: digest(path) for path in sources},
    "fatbins": {name: digest(folder + "/" + name) for name in ["hash.fatbin", "warpcrypt.fatbin"]},
}
with open(folder + "/manifest.json", "w") as out:
    json.dump(manifest, out, indent=2)
    out.write("\n")
END
}

# The lab: native code for one kind of device is enough, because others compile the PTX when it is
# loaded.
lab=../benches/lab/kernels
light_flags=(-std=c++17 -O3 -fatbin -Xfatbin=-compress-all -I../../../kernels
    -gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80)

# $1: output folder for the lab's manifest and fatbins.
build_lab() {
    local source
    for source in *.cu; do
        "$nvcc" "${light_flags[@]}" "$source" -o "$1/${source%.cu}.fatbin"
    done
    python3 - "$1" "$("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p')" "${light_flags[*]}" <<'END'
import glob, hashlib, json, sys

folder, compiler, flags = sys.argv[1:]
digest = lambda path: hashlib.sha3_256(open(path, "rb").read()).hexdigest()
units = sorted(glob.glob("*.cu"))
sources = units + sorted(glob.glob("*.cuh"))
shared = ["aes_tables.cuh", "keccak.cuh", "kuznyechik_tables.cuh", "md6.cuh", "platform.cuh", "requirements.txt"]
fatbins = [unit[:-2] + "fatbin" for unit in units]
manifest = {
    "compiler": "nvcc " + compiler,
    "flags": flags,
    "digest": "SHA3-256",
    "sources": {path: digest(path) for path in sources + ["../../../kernels/" + name for name in shared]},
    "fatbins": {name: digest(folder + "/" + name) for name in fatbins},
}
with open(folder + "/manifest.json", "w") as out:
    json.dump(manifest, out, indent=2)
    out.write("\n")
END
}

if [ "${1:-}" = --check ]; then
    fresh=$(mktemp -d)
    trap 'rm -rf "$fresh"' EXIT
    mkdir "$fresh/lab"
    build "$fresh"
    (cd "$lab" && build_lab "$fresh/lab")
    for file in manifest.json *.fatbin; do
        cmp "$fresh/$file" "$file"
    done
    for file in "$lab"/manifest.json "$lab"/*.fatbin; do
        cmp "$fresh/lab/${file##*/}" "$file"
    done
else
    build .
    (cd "$lab" && build_lab .)
fi
