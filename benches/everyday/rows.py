"""The rows of the table: a name, and a shell script for all systems or one for each. A script succeeds if the system does what
the row's name says. None: the system has no such command."""

NOTHING = None


def each(name, ext4, warpcrypt, gocryptfs):
    return name, {"ext4": ext4, "warpcrypt": warpcrypt, "gocryptfs": gocryptfs}


def same(name, script):
    return each(name, script, script, script)


WARPCRYPT = 'W="--password-file $P/password"; '

TOOLS = [
    each(
        "check finds a changed byte",
        'with_file; damage_content; fails_saying /file e2fsck -fn "$S"',
        WARPCRYPT + 'with_file; damage_content; fails_saying \'"file"\' warpcrypt check --full $W "$S"',
        'with_file; damage_content; fails_saying \'"file"\' gocryptfs -fsck -passfile $P/password "$S"',
    ),
    each(
        "… and the bytes in it",
        NOTHING,
        WARPCRYPT + 'with_file; damage_content; fails_saying "bytes [0-9]+ to [0-9]+" warpcrypt check --full $W "$S"',
        'with_file; damage_content; fails_saying "block #[0-9]+" gocryptfs -fsck -passfile $P/password "$S"',
    ),
    same(
        "reading what was changed fails",
        "with_file; damage_content; attach; fails cat $M/file >/dev/null",
    ),
    same(
        "bytes of its 100,000 that `dd` still reads right",
        """with_file; damage_content; attach; dd if=$M/file of=$D/out bs=4096 conv=noerror,sync || true
        truncate -s 100000 $D/out; wrong=$({ cmp -l $D/out $D/file || true; } | wc -l); say $((100000 - wrong))""",
    ),
    each(
        "damaged metadata is repaired",
        'with_file; dd if=/dev/zero of="$S" bs=1024 seek=1 count=1 conv=notrunc; fails e2fsck -fy "$S"; attach; cmp $M/file $D/file',
        WARPCRYPT + 'with_file; damage "$(stored)" 100; warpcrypt check --full --repair $W "$S"; attach; cmp $M/file $D/file',
        'with_file; damage "$(stored)" 5; fails gocryptfs -fsck -passfile $P/password "$S"; attach; cmp $M/file $D/file',
    ),
    each(
        "a stray file in the store can be cleared away",
        NOTHING,
        WARPCRYPT + 'fresh; mkdir dir; detach; for d in $S/*/; do touch $d.DS_Store; done; warpcrypt check --move-strays $W "$S"; attach; rmdir $M/dir',
        'fresh; mkdir dir; detach; for d in $S/*/; do touch $d.DS_Store; done; gocryptfs -fsck -passfile $P/password "$S" || true; attach; rmdir $M/dir',
    ),
    each(
        "a tree comes out whole without a mount",
        'fresh; tree $M/t; detach; debugfs -R "rdump /t $D" "$S"; attach; same_tree $M/t $D/t',
        WARPCRYPT + 'fresh; tree $M/t; detach; warpcrypt export $W "$S" t $D/t; attach; same_tree $M/t $D/t',
        NOTHING,
    ),
    each(
        "a tree goes in whole without a mount",
        NOTHING,
        WARPCRYPT + 'fresh; tree $D/t; detach; warpcrypt import $W "$S" $D/t t; attach; same_tree $D/t $M/t',
        NOTHING,
    ),
    each(
        "a printed secret opens it without configuration",
        NOTHING,
        WARPCRYPT
        + 'with_file; warpcrypt key master $W "$S" >$D/master; rm $S/warpcrypt.json*; call terminal $D/master warpcrypt key restore --master --new-password-file $P/password "$S"; attach; cmp $M/file $D/file',
        """with_file; gocryptfs-xray -dumpmasterkey $S/gocryptfs.conf <$P/password >$D/master || true
        rm $S/gocryptfs.conf; gocryptfs -q -masterkey "$(tail -n 1 $D/master)" "$S" "$M"; cmp $M/file $D/file""",
    ),
    each(
        "without it, nothing suggests `init`",
        NOTHING,
        "with_file; rm $S/warpcrypt.json*; fails_without 'init' attach",
        "with_file; rm $S/gocryptfs.conf; fails_without 'init' attach",
    ),
    each(
        "a new master key for what is there",
        NOTHING,
        WARPCRYPT + """with_file; echo other >$D/other; warpcrypt key rotate $W --new-password-file $D/other --kdf-memory 8 "$S"
        warpcrypt passwd --password-file $D/other --new-password-file $P/password --kdf-memory 8 "$S"; attach; cmp $M/file $D/file""",
        NOTHING,
    ),
    each(
        "an old file put back is refused",
        NOTHING,
        WARPCRYPT
        + 'with_file; attach anchor=$D/anchor; detach; cp "$(stored)" $D/old; attach anchor=$D/anchor; echo new | dd of=$M/file conv=notrunc; detach; cp $D/old "$(stored)"; attach anchor=$D/anchor; fails cat $M/file >/dev/null',
        'with_file; cp "$(stored)" $D/old; attach; echo new | dd of=$M/file conv=notrunc; detach; cp $D/old "$(stored)"; attach; fails cat $M/file >/dev/null',
    ),
    each(
        "locked, reads wait for the password",
        NOTHING,
        WARPCRYPT
        + 'with_file; attach; warpcrypt lock "$M"; (cat $M/file >$D/out) & sleep 1; test ! -s $D/out; warpcrypt unlock $W "$M"; wait; cmp $D/out $D/file',
        NOTHING,
    ),
    each(
        "locks or unmounts when idle",
        NOTHING,
        "with_file; attach idle=1s; for i in 1 2 3 4 5 6; do sleep 1; done; fails timeout 1 cmp $M/file $D/file",
        "with_file; attach idle=1s; for i in 1 2 3 4 5 6; do sleep 1; done; fails timeout 1 cmp $M/file $D/file",
    ),
    each(
        "password and file open only together",
        NOTHING,
        """fresh; detach; warpcrypt init $D/v --password-file $P/password --key-file $P/key --kdf-memory 8
        fails warpcrypt ls --password-file $P/password $D/v; fails warpcrypt ls --key-file $P/key $D/v
        warpcrypt ls --password-file $P/password --key-file $P/key $D/v""",
        """fresh; detach; mkdir $D/v; gocryptfs -q -init -scryptn 10 -passfile $P/password -passfile $P/password2 $D/v
        fails gocryptfs -q -passfile $P/password $D/v $M; gocryptfs -q -passfile $P/password -passfile $P/password2 $D/v $M""",
    ),
    each(
        "less memory for the password",
        NOTHING,
        "fresh; detach; warpcrypt init $D/v --password-file $P/password --kdf-memory 8",
        "fresh; detach; mkdir $D/v; gocryptfs -q -init -scryptn 10 -passfile $P/password $D/v",
    ),
    each(
        "changing a password keeps label and others",
        NOTHING,
        WARPCRYPT
        + """fresh; detach; warpcrypt key add "$S" $W --new-password-file $P/password2 --label Anna --kdf-memory 8
        warpcrypt passwd "$S" --password-file $P/password2 --new-password-file $P/password3 --kdf-memory 8
        warpcrypt key list "$S" | grep '^ *2.*Anna'; warpcrypt ls $W "$S"; warpcrypt ls --password-file $P/password3 "$S" """,
        NOTHING,
    ),
    each(
        "`--json` with a version",
        NOTHING,
        """fresh; detach; W="--password-file $P/password"; for c in info "key list"; do warpcrypt $c --json "$S" | grep '"version": 1'; done
        warpcrypt check --json $W "$S" | grep '"version": 1'; warpcrypt doctor --json | grep '"version": 1'""",
        NOTHING,
    ),
]

LETTER = [
    same("POSIX ACLs are enforced", "fresh; echo x >f; chmod 600 f; fails nobody cat f; setfacl -m u:65534:r f; nobody cat f"),
    same("… kept by `cp -a`", "fresh; touch f; setfacl -m u:1234:rw f; cp -a f g; getfacl g | grep user:1234:rw-"),
    same("… by `rsync -A`", "fresh; touch f; setfacl -m u:1234:rw f; rsync -aA f g; getfacl g | grep user:1234:rw-"),
    same(
        "… by `tar --acls`",
        "fresh; mkdir a b; touch a/f; setfacl -m u:1234:rw a/f; tar -C a --acls -cf - f | tar -C b --acls -xf -; getfacl b/f | grep user:1234:rw-",
    ),
    same("… default ACLs are inherited", "fresh; setfacl -d -m u:1234:rw .; touch f; getfacl f | grep user:1234:rw-"),
    same("O_TMPFILE", "fresh; call tmpfile . f; grep content f"),
    same("RENAME_WHITEOUT", "fresh; touch a; call whiteout a b; test -f b"),
    same(
        "upper layer of an overlay",
        """fresh; mkdir lower upper work merged; echo x >lower/f; mkdir lower/d; touch lower/d/g
        mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged; trap 'umount "$M/merged"' EXIT
        echo y >>merged/f; rm -r merged/d; mkdir merged/d; mv merged/f merged/d/h; test "$(ls merged/d)" = h; grep y merged/d/h""",
    ),
    same("longest target of a symbolic link, bytes", "fresh; call link_target . >&3"),
    same(
        "set-id bits go when another user writes",
        "fresh; echo x >f; chmod 6777 f; nobody sh -c 'echo y >>f'; test $(stat -c %a f) = 777",
    ),
    same(
        "… and when the owner changes",
        "fresh; echo x >f; chmod 6755 f; chown 7:8 f; test $(stat -c %a f) = 755",
    ),
    same(
        "set-group-id directories hand on their group",
        "fresh; chown :1234 .; chmod 2777 .; nobody touch f; nobody mkdir d; test $(stat -c %g f d | sort -u) = 1234; test $(stat -c %a d) = 2755",
    ),
    same("file handles", "fresh; echo content >f; call handle f $D/handle; call by_handle . $D/handle | grep content"),
    same(
        "… after a remount",
        "fresh; echo content >f; call handle f $D/handle; reattach; call by_handle . $D/handle | grep content",
    ),
    same(
        "access times as relatime has them",
        """fresh; echo x >f; touch -d 2001-02-03 f; cat f; test $(stat -c %X f) -gt 1500000000
        before=$(stat -c %x f); sleep 0.1; cat f; test "$(stat -c %x f)" = "$before"
        touch -m f; sleep 0.1; cat f; test "$(stat -c %x f)" != "$before" """,
    ),
    same(
        "… with `noatime` they stay",
        "fresh; reattach noatime; echo x >f; touch -d 2001-02-03 f; cat f; test $(stat -c %X f) -lt 1500000000",
    ),
    same(
        "trusted attributes of links and pipes",
        """fresh; ln -s x l; mkfifo p; for f in l p; do setfattr -h -n trusted.x -v value $f
        getfattr -h -n trusted.x --only-values $f | grep value; done""",
    ),
    same("user attributes of links: EPERM", "fresh; ln -s x l; fails_saying permitted setfattr -h -n user.x -v y l"),
    same("RLIMIT_FSIZE", "fresh; call size_limit f"),
    same("attributes on one file, up to 1,000", "fresh; touch f; call xattrs f >&3"),
    same("largest value of an attribute, bytes", "fresh; touch f; call xattr_size f >&3"),
]

HABITS = [
    same(
        "a mount right after `umount` works",
        "fresh; head -c 50000000 /dev/zero >f; cd /; umount $M; attach; test $(stat -c %s $M/f) = 50000000",
    ),
    same("`mount -o remount,ro`, then `rw`", "fresh; mount -o remount,ro $M; fails touch f; mount -o remount,rw $M; touch f"),
    same("`-o` options of FUSE and fstab", "fresh; detach; options fsname=x subtype=x comment=x nonempty x-systemd.automount nofail"),
    same("… uid, gid, umask, allow_root, auto_unmount", "fresh; detach; options uid=7 gid=7 umask=077 allow_root auto_unmount"),
    same("… big_writes, max_read, kernel_cache, default_permissions", "fresh; detach; options big_writes max_read=65536 kernel_cache default_permissions"),
    same("`-o ro,rw`: the last wins", "fresh; reattach ro,rw; touch f"),
    each(
        "`mount -t fuse PROGRAM#STORE`",
        NOTHING,
        "fresh; detach; mount -t fuse -o password-file=$P/password warpcrypt#$S $M; mountpoint $M",
        "fresh; detach; mount -t fuse -o passfile=$P/password gocryptfs#$S $M; mountpoint $M",
    ),
    each(
        "a password command",
        NOTHING,
        "fresh; detach; mount -t fuse.warpcrypt -o password-command='cat $P/password' $S $M; mountpoint $M",
        "fresh; detach; mount -t fuse.gocryptfs -o extpass=cat,extpass=$P/password $S $M; mountpoint $M",
    ),
    each(
        "prompts in a terminal",
        NOTHING,
        "fresh; detach; call terminal $P/password warpcrypt mount $S $M; mountpoint $M",
        "fresh; detach; call terminal $P/password gocryptfs $S $M; mountpoint $M",
    ),
    each(
        "Ctrl-C at the prompt restores echo",
        NOTHING,
        "fresh; detach; call terminal interrupt sh -c \"trap : INT; warpcrypt mount $S $M; sleep 3\"",
        "fresh; detach; call terminal interrupt sh -c \"trap : INT; gocryptfs $S $M; sleep 3\"",
    ),
    each(
        "a missing mount point is noticed before the prompt",
        NOTHING,
        "fresh; detach; fails_saying 'asks for nothing' call terminal $P/password warpcrypt mount $S $D/none",
        "fresh; detach; fails_saying 'asks for nothing' call terminal $P/password gocryptfs $S $D/none",
    ),
    each(
        "mounts where no log can be written",
        NOTHING,
        "fresh; detach; mount --bind -o ro /var/log /var/log; mount -o remount,bind,ro /var/log; trap 'umount /var/log' EXIT; warpcrypt mount --password-file $P/password $S $M; mountpoint $M",
        "fresh; detach; mount --bind -o ro /var/log /var/log; mount -o remount,bind,ro /var/log; trap 'umount /var/log' EXIT; gocryptfs -q -passfile $P/password $S $M; mountpoint $M",
    ),
    same(
        "a second mount is refused, naming the first",
        'fresh; mkdir $D/other; N=$M; M=$D/other; fails_saying "$N" attach',
    ),
    each(
        "a message about a dead mount says what to do",
        NOTHING,
        "fresh; cd /; kill -9 $(process); sleep 1; fails_saying 'dead|umount' attach",
        "fresh; cd /; kill -9 $(process); sleep 1; fails_saying 'dead|umount' attach",
    ),
    same(
        "after a kill, what `fsync` confirmed is there",
        """fresh; [ $FS != ext4 ] || { say –; exit; }; head -c 3000000 /dev/urandom >$D/file; cp $D/file f; sync f; cd /
        kill -9 $(process); sleep 1; umount -i -l $M; attach; cmp $M/f $D/file""",
    ),
    each(
        "a full store harms no mount that writes nothing",
        "with_file; attach; dd if=/dev/zero of=$M/big || true; detach; attach; cmp $M/file $D/file; detach",
        "with_file; mkdir $D/full; mount -t tmpfs -o size=8M full $D/full; mv $S $D/full/store; S=$D/full/store; dd if=/dev/zero of=$D/full/big || true; attach; cmp $M/file $D/file; detach; attach",
        "with_file; mkdir $D/full; mount -t tmpfs -o size=8M full $D/full; mv $S $D/full/store; S=$D/full/store; dd if=/dev/zero of=$D/full/big || true; attach; cmp $M/file $D/file; detach; attach",
    ),
]

PARTS = [("Tools", TOOLS), ("A filesystem to the letter", LETTER), ("Habits", HABITS)]
