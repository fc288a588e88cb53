#!/usr/bin/env python3
"""What people expect of a filesystem that they live with, tried on ext4, warpcrypt and gocryptfs, one after the other. Prints
a page with a table; standard error has what each command said.

As root: benches/everyday/everyday.py [PART OF A ROW'S NAME] > benches/results/everyday.md
  WARPCRYPT   the program (target/release/warpcrypt)
  TMPDIR      where the filesystems lie: 2 GB of room
Needs the packages acl, attr, e2fsprogs, fuse3, gocryptfs, rsync, util-linux. A mount namespace of its own keeps mounts, and the
helpers of mount(8), to itself.
"""
import os, re, shutil, subprocess, sys, tempfile, time
from pathlib import Path

sys.dont_write_bytecode = True
from rows import PARTS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SYSTEMS = ["ext4", "warpcrypt", "gocryptfs"]
NEEDED = "setfacl setfattr e2fsck debugfs fusermount3 gocryptfs rsync unshare setpriv".split()

# What a command says, and how the table has it.
WORDS = [
    (r"[Oo]peration not supported", "EOPNOTSUPP"),
    (r"[Oo]peration not permitted", "EPERM"),
    (r"[Pp]ermission denied", "EACCES"),
    (r"[Ii]nvalid argument", "EINVAL"),
    (r"[Ff]ile name too long", "ENAMETOOLONG"),
    (r"[Ii]nput/output error", "EIO"),
    (r"not implemented", "ENOSYS"),
    (r"[Ss]tale file handle", "ESTALE"),
    (r"[Nn]o space left", "ENOSPC"),
    (r"unrecognized subcommand|unexpected argument|unknown option|UNKNOWN OPTION|unknown flag", "unknown"),
]


def sh(script, **more):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], text=True, capture_output=True, **more)


class Place:
    """A temporary directory, and the programs' helpers in this mount namespace."""

    def __init__(self, program):
        self.path = Path(tempfile.mkdtemp(prefix="warpcrypt-everyday-"))
        self.path.chmod(0o755)
        for name, content in [("password", b"correct horse\n"), ("password2", b"battery\n"), ("password3", b"staple\n")]:
            (self.path / name).write_bytes(content)
        (self.path / "key").write_bytes(os.urandom(32))
        self.env = dict(os.environ, P=str(self.path), CALLS=str(HERE / "calls.py"), LC_ALL="C")
        self.env["PATH"] = f"/usr/local/bin:{os.environ['PATH']}:/usr/sbin"
        # mount(8) finds the helpers there, and they find the program.
        helpers = """for of in sbin local/bin; do
                top=$P/top/$of; mkdir -p "$top"; mount -t tmpfs top "$top"; mkdir "$top/upper" "$top/work"
                mount -t overlay -o "lowerdir=/usr/$of,upperdir=$top/upper,workdir=$top/work" top "/usr/$of"
            done
            cp "$1"/mount-scripts/*mount.fuse.warpcrypt /usr/sbin/
            ln -sf "$2" /usr/local/bin/warpcrypt"""
        subprocess.run(["bash", "-euc", helpers, "bash", str(ROOT), str(program)], env=self.env, check=True)

    def unmount(self, below):
        """Takes every mount away whose path begins so."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        mounts = [line.split()[4] for line in lines if line.split()[4].startswith(str(below))]
        for mount in sorted(mounts, reverse=True):
            if subprocess.run(["umount", "-i", mount], capture_output=True).returncode:
                subprocess.run(["umount", "-i", "-l", mount], capture_output=True)

    def remove(self):
        self.unmount("/usr/sbin")
        self.unmount("/usr/local/bin")
        self.unmount(self.path)
        shutil.rmtree(self.path, ignore_errors=True)


def attempt(place, system, script):
    """What the table has for a system."""
    if script is None:
        return "–"
    said, result = place.path / "said", place.path / "result"
    whole = f'. "{HERE}/systems.sh"; {script}'
    with open(said, "w") as out, open(result, "w") as third:
        command = ["timeout", "--kill-after=5", "60", "bash", "-euo", "pipefail", "-c", whole]
        # Descriptor 3 is for results.
        shell = ["bash", "-c", 'exec 3>"$1"; shift; exec "$@"', "bash", str(result), *command]
        done = subprocess.run(shell, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", env=dict(place.env, FS=system))
        third.close()
    place.unmount(place.path / f"{system}.")
    text, own = said.read_text(errors="replace"), result.read_text().strip()
    word = next((word for pattern, word in WORDS if re.search(pattern, text)), None)
    if done.returncode == 0:
        answer = own or "yes"
    elif done.returncode in (124, 137):
        answer = "no: hangs"
    else:
        answer = f"no: {word}" if word else "no"
    print(f"  {system}: {answer}", *text.splitlines()[-8:], sep="\n      ", file=sys.stderr)
    return answer


def versions():
    lines = [sh(f"{program} --version").stdout.split(";")[0].strip() for program in ("warpcrypt", "gocryptfs")]
    return f"Linux {os.uname().release.split('-')[0]}, " + ", ".join(lines)


def page(place, only):
    began = time.strftime("%H:%M", time.gmtime())
    lines = []
    for part, rows in PARTS:
        rows = [row for row in rows if only in row[0]]
        if rows:
            lines += ["", f"## {part}", "", "| |" + "|".join(SYSTEMS) + "|", "|---" * 4 + "|"]
        for name, scripts in rows:
            print(name, file=sys.stderr)
            lines.append(f"|{name}|" + "|".join(attempt(place, system, scripts[system]) for system in SYSTEMS) + "|")
    ended = time.strftime("%H:%M", time.gmtime())
    print("# Every day: ext4, warpcrypt, gocryptfs\n")
    print("**Question.** What of that which people expect of a filesystem do ext4, warpcrypt and gocryptfs do?\n")
    print(f"**Machine.** {time.strftime('%F', time.gmtime())}, {began} to {ended} UTC, {os.cpu_count()} processors, {versions()}.")
    print("Mounts by root, with `allow_other`, `suid`, `dev`; gocryptfs with `-acl`. ext4 on a loop device.\n")
    print("    benches/everyday/everyday.py > benches/results/everyday.md\n")
    print("`benches/everyday/rows.py` has each row's commands. –: the program has no such command; unknown: it does not know the option.")
    print("These mounts go through `/dev/fuse`; over io_uring (`--io-uring on`) warpcrypt has O_TMPFILE.")
    print(*lines, sep="\n")


def main():
    program = Path(os.environ.get("WARPCRYPT", ROOT / "target/release/warpcrypt")).resolve()
    missing = [name for name in NEEDED if not shutil.which(name)] + ([] if program.exists() else [str(program)])
    if missing:
        sys.exit(f"everyday.py: needs {', '.join(missing)}")
    if os.environ.get("EVERYDAY_ALONE") != "yes":
        os.environ["EVERYDAY_ALONE"] = "yes"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])
    place = Place(program)
    os.environ["PATH"] = place.env["PATH"]
    try:
        page(place, "".join(sys.argv[1:2]))
    finally:
        place.remove()


main()
