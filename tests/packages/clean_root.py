"""A fresh Debian 12 in a folder, and programs in it: nothing of this machine is there but what is given.

Needs root: it is entered by chroot, in namespaces of its own. Its packages come from this machine's own sources.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ARCHIVE = ROOT / ".cache/clean-root.tar"
LIMIT_S = 600

# Arguments: the root, whether it may use the network, the program, and then folders to be seen in /given.
ENTER = r"""
set -e
root=$1 network=$2 program=$3
shift 3
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
for folder; do
  mkdir -p "$root/given/${folder##*/}"
  mount --bind "$folder" "$root/given/${folder##*/}"
done
[ "$network" = yes ] || ip link set lo up
exec chroot "$root" /bin/bash -euo pipefail -c "$program"
"""


def make_archive():
    """Made once: Debian without a compiler, with Python."""
    if ARCHIVE.exists():
        return
    subprocess.run(["apt-get", "update"], check=True, stdout=subprocess.DEVNULL)
    sources = _output("apt-get", "indextargets", "--format", "deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
                      "Created-By: Packages", "Origin: Debian")
    options = [f"--aptopt={line}" for line in _output("apt-config", "dump", "Acquire").splitlines()
               if re.match(r'Acquire::https?::(Proxy|CaInfo) "', line)]
    (release,) = re.findall(r"^VERSION_CODENAME=(.*)$", pathlib.Path("/etc/os-release").read_text("utf-8"), re.M)
    ARCHIVE.parent.mkdir(exist_ok=True)
    fresh = ARCHIVE.with_suffix(".fresh.tar")
    subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", "--include=python3-venv", *options, release, fresh, "-"],
                   input="".join(sorted(set(sources.splitlines(keepends=True)))), text=True, check=True,
                   timeout=LIMIT_S)
    fresh.rename(ARCHIVE)


def _output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


class CleanRoot:
    """Its folder is there until close()."""

    def __init__(self):
        make_archive()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ropewalk-root-"))
        subprocess.run(["tar", "-C", self.folder, "-xf", ARCHIVE], check=True)
        for file in ("/etc/resolv.conf", "/etc/hosts"):
            if os.path.exists(file):
                shutil.copy(file, f"{self.folder}{file}")

    def copy(self, *files):
        """Into its root folder."""
        for file in files:
            shutil.copy(file, self.folder)

    def run(self, program, given=(), network=False, **environment):
        """What the program of bash says, in the root folder. Folders that are given are seen in /given.
        Raises AssertionError with what it said where it fails."""
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"]),
                   "sh", "-c", ENTER, "sh", self.folder, "yes" if network else "no", program, *given]
        kept = {name: value for name, value in os.environ.items() if re.fullmatch("(?i)(https?|no)_proxy", name)}
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=LIMIT_S, cwd="/",
                              env={**kept, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
                                   "DEBIAN_FRONTEND": "noninteractive", **environment})
        assert done.returncode == 0, f"exit status {done.returncode}:\n{program}\n{done.stdout}"
        return done.stdout

    def close(self):
        shutil.rmtree(self.folder)
