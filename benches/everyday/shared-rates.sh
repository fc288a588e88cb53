#!/usr/bin/env bash
# What a vault costs on a store that machines share, all of it on this machine. Seconds of the bare store, a mount alone, a mount with
# --shared and gocryptfs with -sharedstorage, in turn: cp of 300 files, cat of them, dd of 256 MiB to and from a file, rm.
#
# As root: benches/everyday/shared-rates.sh STORE [ROUNDS, 3 [FILES, 300 [MIB, 256]]]
#   STORE is one of mount-scripts/shared.sh, and needs what it needs there; then gocryptfs, and MIB in /dev/shm. WARPCRYPT is the
#   program.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$(readlink -f "${WARPCRYPT:-$root/target/release/warpcrypt}")
store=${1:-} rounds=${2:-3} files=${3:-300} mib=${4:-256}
case $store in
    gluster | nfs | ceph) ;;
    *) echo "usage: shared-rates.sh gluster|nfs|ceph [ROUNDS [FILES [MIB]]]" >&2; exit 2 ;;
esac
place=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-rates-XXXXXX")
volume=warpcrypt-rates big=/dev/shm/warpcrypt-rates
. "$root/mount-scripts/$store.sh"
mapfile -t headers < <(ls -d /usr/include/linux/*.h | head -n "$files")

clean_up() {
    cd /
    for name in mnt store; do
        mountpoint -q "$place/$name" && umount -l "$place/$name"
    done
    "${store}_remove" >/dev/null
    rm -rf --one-file-system "$place" "$big"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

timed() { # COMMAND...
    local begin=$EPOCHREALTIME
    "$@" >/dev/null 2>&1 || printf 'FAILED '
    printf ' %.2f' "$(bc -l <<<"$EPOCHREALTIME - $begin")"
}

forget() { echo 3 >/proc/sys/vm/drop_caches; }

row() { # NAME DIRECTORY
    local dir=$2/files
    mkdir "$dir" && printf '%-20s' "$1"
    timed cp "${headers[@]}" "$dir"
    forget
    timed bash -c 'cat "$0"/*' "$dir"
    timed dd if="$big" of="$2/big" bs=1M
    forget
    timed dd if="$2/big" of=/dev/null bs=1M
    timed rm -r "$dir" "$2/big"
    echo
}

mkdir "$place/store" "$place/mnt"
"${store}_make" >/dev/null && "${store}_attach" "$place/store" || exit 1
head -c 64 /dev/urandom >"$place/key"
head -c "${mib}M" /dev/urandom >"$big"
mkdir "$place/store/bare" "$place/store/gocryptfs"
gocryptfs -q -init -passfile "$place/key" "$place/store/gocryptfs"
for vault in alone shared; do "$program" init "$place/store/$vault" --key-file "$place/key" >/dev/null; done

for ((round = 0; round < rounds; round++)); do
    row bare "$place/store/bare"
    "$program" mount "$place/store/alone" "$place/mnt" --key-file "$place/key" && row "a mount alone" "$place/mnt"
    "$program" umount "$place/mnt"
    "$program" mount --shared "$place/store/shared" "$place/mnt" --key-file "$place/key" && row --shared "$place/mnt"
    "$program" umount "$place/mnt"
    gocryptfs -q -sharedstorage -passfile "$place/key" "$place/store/gocryptfs" "$place/mnt" && row gocryptfs "$place/mnt"
    umount "$place/mnt"
done
