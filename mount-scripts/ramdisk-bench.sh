#!/usr/bin/env bash
# Creates a RAM disk and measures a mounted vault on it, compared with the RAM disk itself, a FUSE
# filesystem without encryption and every installed peer (gocryptfs, securefs, encfs, cryfs). Then it
# removes everything again. The report, with an HTML page of plots, is left in the output directory.
#
# Usage: mount-scripts/ramdisk-bench.sh [OPTIONS OF `warpcrypt-bench mount`]
#        mount-scripts/ramdisk-bench.sh --quick
#        mount-scripts/ramdisk-bench.sh --runs 9 --groups streams,random --only tmpfs,warpcrypt,gocryptfs
#   WARPCRYPT_BENCH  the program (target/release/warpcrypt-bench)
#   OUTPUT           directory of the report (ramdisk-bench)
#   RAMDISK          size of the RAM disk (12G); memory is allocated as it fills
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=${WARPCRYPT_BENCH:-$root/target/release/warpcrypt-bench}
output=${OUTPUT:-ramdisk-bench}

[ -x "$program" ] || { echo "$program is missing: cargo build --release -p warpcrypt-bench" >&2; exit 1; }

disk=
child=
clean_up() {
    [ -n "$disk" ] || return 0
    # Clean up after the program, innermost mounts first.
    awk -v "below=$disk/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        while read -r mount; do umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount"; done
    ! mountpoint -q "$disk" || umount "$disk" || umount -l "$disk"
    rm -rf --one-file-system "$disk"
}
trap clean_up EXIT
# On a signal the program unmounts and removes its files; wait for that.
trap '[ -z "$child" ] || kill -TERM "$child" 2>/dev/null' INT TERM HUP

if [ "$(id -u)" = 0 ]; then
    disk=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-ramdisk-XXXXXX")
    mount -t tmpfs -o "size=${RAMDISK:-12G},mode=700" warpcrypt-bench "$disk" || exit 1
else
    # Only root can mount a tmpfs. Every Linux system has this one.
    disk=$(mktemp -d /dev/shm/warpcrypt-ramdisk-XXXXXX) || exit 1
fi

"$program" mount "$disk" --output "$output" "$@" &
child=$!
status=0
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    status=$?
done
[ "$status" != 0 ] || echo "The plots: $output/mount.html"
exit "$status"
