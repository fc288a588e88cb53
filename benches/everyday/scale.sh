#!/usr/bin/env bash
# Vaults of many small files: what making, listing and checking them takes in time and memory, and what one takes in the store.
# Each store is a filesystem of its own: ext4 in a sparse image, or tmpfs. Prints a row of a table for each count; standard error has what the programs said.
#
# As root: benches/everyday/scale.sh COUNT...
#   PROGRAM  warpcrypt or gocryptfs, from the path; a path stands for a build of warpcrypt (warpcrypt)
#   BLOCK    bytes of a block of the ext4 (4096), or tmpfs
#   THREADS  so many make the files (4)
#   TMPDIR   where the images lie: with blocks of 4096 bytes 9 KB a file, with blocks of 1024 6 KB
# Needs gcc and time.
set -euo pipefail
export LC_ALL=C

program=${PROGRAM:-warpcrypt} block=${BLOCK:-4096}
place=$(mktemp -d "${TMPDIR:-/tmp}/warpcrypt-scale-XXXXXX")
disk=$place/disk store=$place/disk/store mount=$place/mount
server=
end() {
    mountpoint -q "$mount" && umount -l "$mount"
    [ -z "$server" ] || wait "$server" || true
    mountpoint -q "$disk" && umount -l "$disk"
    rm -rf --one-file-system "$place"
}
trap end EXIT
trap 'exit 130' INT TERM
mkdir "$disk" "$mount"
gcc -O2 -pthread -DTHREADS="${THREADS:-4}" -o "$place/files" "$(dirname "$0")/files.c"
head -c 32 /dev/urandom | base64 >"$place/password"

attach() {
    case $program in
        gocryptfs) gocryptfs -q -fg -passfile "$place/password" "$store" "$mount" >&2 & ;;
        *) "$program" mount -f --password-file "$place/password" "$store" "$mount" >&2 & ;;
    esac
    server=$!
    until mountpoint -q "$mount"; do sleep 0.05; done
}
detach() { umount "$mount" && wait "$server" && server=; }
peak() { awk '/^VmHWM/ { printf "%.0f", $2 / 1024 }' "/proc/$server/status"; }
used() { df --block-size=1 --output="$1" "$disk" | tail -n 1; }
timed() { # COMMAND...: sets `took`, in this shell, which has the server as a child
    local start=$EPOCHREALTIME
    "$@" >&2
    took=$(bc <<<"scale=2; ($EPOCHREALTIME - $start) / 1")
}
list() { [ "$(find "$mount" -type f | wc -l)" = "$1" ]; }
check() { # [--full]: seconds, and MB of memory at most
    case $program in
        gocryptfs) set -- gocryptfs -fsck -q -passfile "$place/password" "$store" ;;
        *) set -- "$program" check "$@" --password-file "$place/password" "$store" ;;
    esac
    /usr/bin/time -o "$place/took" -f '%e %M' "$@" >&2
    awk '{ printf "%.1f|%.0f", $1, $2 / 1024 }' "$place/took"
}

make_disk() { # COUNT
    case $block in
        tmpfs) mount -t tmpfs -o size=90%,nr_inodes=0 tmpfs "$disk" ;;
        *)
            truncate -s "$(($1 * 2 * (4096 + block) + 1000000000))" "$place/image"
            mkfs.ext4 -q -F -b "$block" -I 256 -N "$(($1 * 101 / 100 + 1000))" "$place/image" >&2
            mount -o loop "$place/image" "$disk"
            ;;
    esac
}

row() { # COUNT
    local made most bytes inodes down up looked listed after light full
    make_disk "$1"
    mkdir "$store"
    case $program in
        gocryptfs) gocryptfs -q -init -scryptn 10 -passfile "$place/password" "$store" >&2 ;;
        *) "$program" init --password-file "$place/password" --kdf-memory 8 "$store" >&2 ;;
    esac
    bytes=$(used used) inodes=$(used iused)
    attach
    made=$("$place/files" make "$mount" "$1")
    most=$(peak)
    timed detach
    down=$took
    bytes=$((($(used used) - bytes) / $1)) inodes=$(bc <<<"scale=3; ($(used iused) - $inodes) / $1")
    timed attach
    up=$took
    looked=$("$place/files" stat "$mount" "$1")
    timed list "$1"
    listed=$took after=$(peak)
    detach
    light=$(check) full=$(check --full)
    umount "$disk"
    rm -f "$place/image"
    echo "|$program|$1|$(bc <<<"$1 / $made")|$most|$down|$bytes|$inodes|$up|$looked|$listed|$after|$light|$full|"
}

echo '|program|files|made a second|peak, MB|unmounted, s|bytes a file in the store|inodes|mounted, s|10,000 looked at, s|listed, s|peak, MB|check, s|peak, MB|check --full, s|peak, MB|'
echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|'
for count; do row "$count"; done
