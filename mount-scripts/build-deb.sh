#!/bin/sh
# Packages target/release/warpcrypt for Debian: warpcrypt_VERSION_ARCHITECTURE.deb. The package depends
# on the libc version that the program needs, which is at most that of the build machine.
#
# Usage: mount-scripts/build-deb.sh [DIR], by default into target/; needs the packages dpkg-dev and
# binutils
#   WARPCRYPT               the program (target/release/warpcrypt)
#   DEBFULLNAME, DEBEMAIL   the packager
set -eu
umask 022
root=$(cd "$(dirname "$0")/.." && pwd)
WARPCRYPT=${WARPCRYPT:-$root/target/release/warpcrypt}
export WARPCRYPT
out=${1:-$root/target}
maintainer="${DEBFULLNAME:-The warpcrypt authors} <${DEBEMAIL:-root@localhost}>"
if ! [ -x "$WARPCRYPT" ]; then
    echo "build-deb.sh: $WARPCRYPT is missing; build it: cargo build --release -p warpcrypt" >&2
    exit 1
fi
version=$("$WARPCRYPT" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
tree=$work/tree
doc=$tree/usr/share/doc/warpcrypt

DESTDIR=$tree "$root/mount-scripts/install.sh" --prefix /usr
# Debian keeps these programs in /usr/sbin.
mkdir -p "$tree/usr/sbin"
mv "$tree"/sbin/* "$tree/usr/sbin/"
rmdir "$tree/sbin"
mv "$tree/usr/share/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions"
strip --remove-section=.comment --remove-section=.note "$tree/usr/bin/warpcrypt"
gzip -9n "$tree"/usr/share/man/man1/*.1
# The helpers take the options of the commands that they call.
mkdir "$tree/usr/share/man/man8"
for helper in "$tree"/usr/sbin/*; do
    name=${helper##*/}
    ln -s "../man1/warpcrypt-${name%%.*}.1.gz" "$tree/usr/share/man/man8/$name.8.gz"
done

gzip -9nc "$root/CHANGELOG.md" >"$doc/changelog.gz"
gzip -9n >"$doc/changelog.Debian.gz" <<END
warpcrypt ($version-1) unstable; urgency=medium

  * Version $version; changelog.gz says what is in it.

 -- $maintainer  $(date -R -r "$root/CHANGELOG.md")
END
{
    cat <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: warpcrypt
Comment: The program contains crates written by others, under MIT, Apache-2.0 or
 Unicode-3.0. The file Cargo.lock of its source names them.

Files: *
Copyright: 2026 The warpcrypt authors
License: MIT or Apache-2.0

License: Apache-2.0
 On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.

License: MIT
END
    sed -n '/^Permission/,$ { s/^$/./; s/^/ /; p; }' "$root/LICENSE-MIT"
} >"$doc/copyright"

# dpkg-shlibdeps reads the program's symbols, and requires a named source package.
mkdir -p "$work/debian" "$tree/DEBIAN"
printf 'Source: warpcrypt\n\nPackage: warpcrypt\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$tree/usr/bin/warpcrypt" | sed -n 's/^shlibs:Depends=/Depends: /p')

(cd "$tree" && find usr -type f -exec md5sum {} +) >"$tree/DEBIAN/md5sums"
cat >"$tree/DEBIAN/control" <<END
Package: warpcrypt
Version: $version-1
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k --apparent-size -s "$tree/usr" | cut -f 1)
${depends:+$depends
}Recommends: fuse3
Section: utils
Priority: optional
Description: encrypted, authenticated directory
 A vault is a directory of encrypted files. Mounted with FUSE, it is a
 directory that any program can work in. Contents, names, link targets and
 extended attributes are encrypted and authenticated, file by file. After a
 kill or a power cut a vault needs no repair.
 .
 Users other than root need fusermount3 from the package fuse3.
END
# Without a system log, mounts by root write to this file.
cat >"$tree/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ "$1" = purge ]; then rm -f /var/log/warpcrypt.log; fi
END
chmod 755 "$tree/DEBIAN/postrm"

mkdir -p "$out"
dpkg-deb --root-owner-group --build "$tree" "$out/warpcrypt_$version-1_$architecture.deb"
