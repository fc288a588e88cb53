# What the scripts of the rows share. FS is the system; P the place for everything. `fresh` sets S, its store (an image for
# ext4), M, where it is mounted, and D, where both are.

call() { python3 "$CALLS" "$@"; }
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
say() { echo "$*" >&3; } # the result of the row, in place of yes or no

fails() { ! "$@"; }
fails_saying() { # PATTERN COMMAND...: fails with a message that has it
    local pattern=$1 said
    shift
    if said=$("$@" 2>&1); then return 1; fi
    echo "$said"
    grep -qE -e "$pattern" <<<"$said"
}
fails_without() { # PATTERN COMMAND...: fails with a message that does not have it
    local pattern=$1 said
    shift
    if said=$("$@" 2>&1); then return 1; fi
    echo "$said"
    ! grep -qE -e "$pattern" <<<"$said"
}

# A new filesystem, mounted.
fresh() {
    D=$(mktemp -d "$P/$FS.XXXXXX") S=$D/store M=$D/mnt
    chmod 755 "$D" && mkdir "$M"
    case $FS in
        ext4) truncate -s 200M "$S" && mkfs.ext4 -q -F -b 4096 -I 256 "$S" ;;
        warpcrypt) warpcrypt init "$S" --password-file "$P/password" --kdf-memory 8 >/dev/null ;;
        gocryptfs) mkdir "$S" && gocryptfs -q -init -scryptn 10 -passfile "$P/password" "$S" ;;
    esac
    attach && chmod 755 "$M" && cd "$M"
}

# Mounts it, with more options.
attach() {
    local own="password-file=$P/password,log-file=$D/log"
    case $FS in
        ext4) mount -t ext4 -o "loop,acl${1:+,$1}" "$S" "$M" ;;
        warpcrypt) mount -t fuse.warpcrypt -o "$own,allow_other,suid,dev${1:+,$1}" "$S" "$M" ;;
        gocryptfs) mount -t fuse.gocryptfs -o "passfile=$P/password,allow_other,suid,dev,acl,q,nosyslog${1:+,$1}" "$S" "$M" ;;
    esac
}

detach() { cd / && umount "$M"; }
reattach() { detach && attach "$@" && cd "$M"; }

# A file of 100,000 random bytes, not mounted; and a copy of it beside.
with_file() {
    fresh && head -c 100000 /dev/urandom >"$D/file" && cp "$D/file" file && detach
}

damage() { printf '\377\376\375' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; } # FILE OFFSET
stored() { find "$S" -type f -size +90k; } # that file's

# Damages the content of that file in the store.
damage_content() {
    [ "$FS" = ext4 ] || { damage "$(stored)" 60000 && return; }
    local block size
    block=$(debugfs -R 'bmap /file 14' "$S" 2>/dev/null)
    size=$(dumpe2fs -h "$S" 2>/dev/null | awk '/^Block size/ { print $3 }')
    damage "$S" $((block * size + 100))
}

# A tree with everything that a copy should keep.
tree() {
    mkdir "$1" && (
        cd "$1" && echo one >one && setfattr -n user.x -v value one && chown 7:8 one && chmod 640 one &&
            setfacl -m u:1234:r one && ln one two && ln -s one link && truncate -s 1M hole && mkfifo pipe &&
            touch -d 2001-02-03 one
    )
}

same_tree() { # ORIGINAL COPY
    local difference
    difference=$(rsync -aHAXni --delete "$1/" "$2/") && echo "$difference" && [ -z "$difference" ] &&
        [ "$(du -k "$2/hole" | cut -f 1)" -lt 100 ]
}

# The process that serves the mount.
process() {
    local at
    for at in /proc/[0-9]*; do
        case $(readlink "$at/exe") in
            *warpcrypt* | *gocryptfs*) tr '\0' '\n' <"$at/cmdline" | grep -qxF "$M" && basename "$at" && return ;;
        esac
    done
    return 1
}

# Options of mount(8), each tried by itself; those that it refuses are the result.
options() {
    local option refused=
    for option in "$@"; do
        if attach "$option"; then detach; else refused="$refused ${option%%=*}"; fi
    done
    say "${refused:+no:$refused}"
}
