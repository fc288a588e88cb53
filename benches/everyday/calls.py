#!/usr/bin/env python3
"""What a row needs and no program gives to a shell: system calls, and a terminal. `calls.py NAME ARGUMENTS`."""
import ctypes, errno, os, pty, re, resource, select, signal, stat, sys, termios, time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100


def must(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def whiteout(old, new):
    """Renames, and leaves a whiteout in the old place (RENAME_WHITEOUT)."""
    must(libc.renameat2(AT_FDCWD, old.encode(), AT_FDCWD, new.encode(), 4))
    left = os.lstat(old)
    assert stat.S_ISCHR(left.st_mode) and left.st_rdev == 0, "no whiteout"


def tmpfile(directory, name):
    """A file without a name (O_TMPFILE), and then with one."""
    file = os.open(directory, os.O_TMPFILE | os.O_RDWR)
    os.write(file, b"content")
    must(libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % file, AT_FDCWD, name.encode(), 0x400))


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]


def handle(path, kept):
    """Keeps the handle of a file."""
    of, mount = Handle(bytes=128), ctypes.c_int()
    must(libc.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(of), ctypes.byref(mount), 0))
    with open(kept, "wb") as file:
        file.write(bytes(of))


def by_handle(directory, kept):
    """Prints a file, opened by its handle."""
    of = Handle.from_buffer_copy(open(kept, "rb").read())
    file = must(libc.open_by_handle_at(os.open(directory, os.O_RDONLY), ctypes.byref(of), os.O_RDONLY))
    sys.stdout.buffer.write(os.read(file, 100))


def xattrs(path):
    """How many extended attributes a file takes, up to 1000, of which all are listed."""
    count = 0
    try:
        while count < 1000:
            os.setxattr(path, f"user.{count}", b"value %d" % count)
            count += 1
    except OSError as e:
        print(e, file=sys.stderr)
    assert len(os.listxattr(path)) == count, "not all are listed"
    print(count)


def xattr_size(path):
    """The largest value of an attribute, in bytes."""
    low, high = 0, 65537
    while high - low > 1:
        middle = (low + high) // 2
        try:
            os.setxattr(path, "user.x", b"x" * middle)
            low = middle
        except OSError:
            high = middle
    print(low)


def link_target(directory):
    """The longest target of a symbolic link, in bytes."""
    low, high = 1, 4096
    while high - low > 1:
        middle = (low + high) // 2
        try:
            os.symlink("x" * middle, f"{directory}/{middle}")
            assert os.readlink(f"{directory}/{middle}") == "x" * middle
            low = middle
        except OSError:
            high = middle
    print(low)


def size_limit(path):
    """A program's limit on the size of files (RLIMIT_FSIZE) holds."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    signals = []
    signal.signal(signal.SIGXFSZ, lambda *_: signals.append(1))
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    written = os.write(file, b"x" * 4096)
    try:
        os.write(file, b"x")
    except OSError as e:
        time.sleep(0.01)  # Only then has the handler run.
        assert (written, e.errno, len(signals)) == (1024, errno.EFBIG, 1), (written, e, signals)
        return
    sys.exit("no error")


def asks(said):
    return re.search(rb"(password|secret)[^\n]*: ?$", said, re.IGNORECASE)


def terminal(answer, *command):
    """Runs a command in a terminal, waits until it asks for a password, and answers or interrupts."""
    child, screen = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    said, end = b"", time.monotonic() + 20
    while not asks(said) and time.monotonic() < end:
        if select.select([screen], [], [], 0.1)[0]:
            try:
                said += os.read(screen, 1000)
            except OSError:
                break
    assert asks(said), "it asks for nothing: " + said.decode().strip()
    time.sleep(0.5)
    if answer == "interrupt":
        os.write(screen, b"\x03")
        time.sleep(1)
        assert termios.tcgetattr(screen)[3] & termios.ECHO, "the terminal shows nothing that is typed"
        return
    os.write(screen, open(answer, "rb").read())
    try:
        while os.read(screen, 1000):
            pass
    except OSError:
        pass
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except (AssertionError, OSError) as e:
        sys.exit(str(e))
