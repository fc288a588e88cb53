#!/bin/sh
# Installs target/release/warpcrypt with its man pages, completions, helpers for mount(8) and umount(8),
# systemd units and an example for /etc/fstab, or removes them all.
#
# Usage, as root: mount-scripts/install.sh [--prefix /usr/local] [--uninstall]
#   WARPCRYPT   the program (target/release/warpcrypt)
#   DESTDIR     a directory to use as the root of the installation
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)
program=${WARPCRYPT:-$here/../target/release/warpcrypt}
dest=${DESTDIR:-}
prefix=/usr/local
uninstall=no

usage() {
    echo 'usage: install.sh [--prefix DIR] [--uninstall]; DIR is absolute' >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        --prefix)
            [ $# -ge 2 ] || usage
            prefix=$2
            shift
            ;;
        --prefix=*) prefix=${1#*=} ;;
        --uninstall) uninstall=yes ;;
        *) usage ;;
    esac
    shift
done
case $prefix in
    /*) prefix=${prefix%/} ;;
    *) usage ;;
esac

# When uninstalling, use the pages and completions of the installed program.
installed=$dest$prefix/bin/warpcrypt
if [ "$uninstall" = yes ] && [ -x "$installed" ]; then program=$installed; fi
if ! [ -x "$program" ]; then
    echo "install.sh: $program is missing; build it: cargo build --release -p warpcrypt" >&2
    exit 1
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
trap 'exit 130' INT TERM

# put MODE SOURCE TARGET: copies a file to the stage.
put() { install -D -m "$1" "$2" "$stage$3"; }

# completion SHELL TARGET: generates a completion script.
completion() {
    mkdir -p "$stage$(dirname "$2")"
    "$program" completions "$1" >"$stage$2"
}

share=$prefix/share
put 755 "$program" "$prefix/bin/warpcrypt"
mkdir -p "$stage$share/man/man1"
"$program" man "$stage$share/man/man1"
completion bash "$share/bash-completion/completions/warpcrypt"
completion zsh "$share/zsh/site-functions/_warpcrypt"
completion fish "$share/fish/vendor_completions.d/warpcrypt.fish"
put 644 "$here/fstab.example" "$share/doc/warpcrypt/examples/fstab"
for helper in mount.fuse.warpcrypt umount.fuse.warpcrypt; do
    if [ -e "$here/$helper" ]; then put 755 "$here/$helper" "/sbin/$helper"; fi
done
for unit in "$here"/systemd/*/*.service; do
    file=$prefix/lib/systemd/${unit#"$here/systemd/"}
    put 644 "$unit" "$file"
    sed -i "s|/usr/bin/|$prefix/bin/|" "$stage$file"
done

# Install file by file, because a directory such as /sbin may be a link.
(cd "$stage" && find . -type f) | while IFS= read -r file; do
    target=$dest/${file#./}
    if [ "$uninstall" = yes ]; then
        rm -f "$target"
    else
        mode=644
        if [ -x "$stage/$file" ]; then mode=755; fi
        install -D -m "$mode" "$stage/$file" "$target"
    fi
done

# Also remove directories that a system may lack, unless they contain anything else.
if [ "$uninstall" = yes ]; then
    (cd "$dest$prefix" && rmdir share/doc/warpcrypt/examples share/doc/warpcrypt \
        share/bash-completion/completions share/bash-completion share/zsh/site-functions share/zsh \
        share/fish/vendor_completions.d share/fish lib/systemd/system lib/systemd/user lib/systemd) \
        2>/dev/null || true
fi

if [ -z "$dest" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
