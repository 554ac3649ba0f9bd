"""What the machine boots: Debian's kernel and an initramfs, made once and kept in a cache folder."""
import contextlib
import dataclasses
import fcntl
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from rdma_vm.failure import Failure, say

KERNEL = "linux-image-amd64"
# crc32: rxe cannot be added without. tbf: for rate limits that a command sets itself. bridge: the
# switches of tools/netlab.
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "crc32_generic",
           "crc32_pclmul", "ib_uverbs", "rdma_ucm", "rdma_rxe", "veth", "bridge", "sch_netem",
           "sch_tbf", "virtio_net")
INIT = pathlib.Path(__file__).resolve().parent / "init"
UNUSED_DAYS_MAX = 14  # an older initramfs goes when a new one is made
PROBE_S = 20


@dataclasses.dataclass(frozen=True)
class Image:
    kernel: pathlib.Path
    initramfs: pathlib.Path


def find_tool(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if not found:
        raise Failure(f"{name} is missing; run: tools/dependencies rdma")
    return found


def busybox():
    path = pathlib.Path(find_tool("busybox"))
    with path.open("rb") as file:
        if b"/ld-linux" in file.read(4096):
            raise Failure(f"{path} is not the static one; run: tools/dependencies rdma")
    return path


def folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = pathlib.Path(base) / "ropewalk/rdma-vm"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot make the cache folder {path}: {error.strerror}; set XDG_CACHE_HOME")
    return path


def call(*words, **more):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        raise Failure(f"failed: {' '.join(map(str, words))}\n{done.stderr.strip()}")
    return done.stdout


def kernel_package(into):
    """The .deb of the kernel: the one that is in the cache, else Debian's newest."""
    have = sorted(into.glob("linux-image-*.deb"), key=lambda path: path.stat().st_mtime)
    if have:
        return have[-1]
    if os.uname().machine != "x86_64":
        raise Failure("this needs an x86-64 machine")
    depends = call(find_tool("apt-cache"), "depends", KERNEL)
    names = re.findall(r"linux-image-\d\S*", depends)
    if not names:
        raise Failure(f"apt knows no package {KERNEL}; run apt-get update (this needs Debian)")
    say(f"fetching {names[0]} into {into}")
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        call(find_tool("apt-get"), "download", names[0], cwd=scratch)
        package = next(pathlib.Path(scratch).glob("*.deb"))
        return package.rename(into / package.name)


def module_files(root, version):
    """The files of MODULES and of what they need, in the order in which to load them."""
    call(find_tool("depmod"), "-b", root, version)
    found = {}
    for module in MODULES:
        for line in call(find_tool("modprobe"), "-d", root, "-S", version, "--show-depends",
                         module).splitlines():
            word, path = line.split()[:2]
            if word == "insmod":
                found[path] = None
    return [pathlib.Path(path) for path in found]


def write_initramfs(tree, target):
    names = "\0".join(sorted(str(path.relative_to(tree)) for path in tree.rglob("*")))
    archive = subprocess.run([busybox(), "cpio", "-o", "-0", "-H", "newc"], cwd=tree, check=True,
                             input=names.encode(), stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL).stdout
    part = target.with_suffix(".part")
    part.write_bytes(gzip.compress(archive, compresslevel=1))
    part.rename(target)


def make_image(package, image):
    with tempfile.TemporaryDirectory(dir=image.kernel.parent) as scratch:
        root, tree = pathlib.Path(scratch) / "root", pathlib.Path(scratch) / "tree"
        call(find_tool("dpkg-deb"), "-x", package, root)
        version = next((root / "lib/modules").iterdir()).name
        (tree / "bin").mkdir(parents=True)
        (tree / "modules").mkdir()
        shutil.copy(busybox(), tree / "bin/busybox")
        shutil.copy(INIT, tree / "init")
        (tree / "init").chmod(0o755)
        files = module_files(root, version)
        for path in files:
            shutil.copy(path, tree / "modules")
        (tree / "modules/order").write_text("".join(f"{path.name}\n" for path in files))
        write_initramfs(tree, image.initramfs)
        shutil.move(root / "boot" / f"vmlinuz-{version}", image.kernel)


@contextlib.contextmanager
def locked(path):
    with (path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare():
    """The Image; fetches and makes what is not in the cache or was made from something else."""
    cache = folder()
    with locked(cache):
        package = kernel_package(cache)
        inputs = [package.name, *MODULES, INIT.read_text(), str(busybox().stat().st_mtime_ns)]
        digest = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]
        image = Image(cache / f"vmlinuz-{package.stem}", cache / f"initramfs-{digest}.gz")
        if not image.kernel.exists() or not image.initramfs.exists():
            for old in cache.glob("initramfs-*"):
                if time.time() - old.stat().st_mtime > UNUSED_DAYS_MAX * 86400:
                    old.unlink()
            make_image(package, image)
        os.utime(image.initramfs)
        return image


def boots_with_kvm(image):
    command = [find_tool("qemu-system-x86_64"), "-nodefaults", "-display", "none", "-machine", "q35",
               "-accel", "kvm", "-cpu", "max", "-m", "512M", "-no-reboot", "-kernel",
               str(image.kernel), "-initrd", str(image.initramfs), "-serial", "stdio",
               "-append", "quiet console=ttyS0 panic=-1 rdma_vm.probe"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=PROBE_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and b"rdma-vm: it boots" in done.stdout


def choose_accel(wish, image):
    """kvm or tcg. /dev/kvm may open where no machine gets further, so one boot is tried, once."""
    if wish != "auto":
        return wish
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    if not re.search(r"^flags\s*:.*\b(vmx|svm)\b", pathlib.Path("/proc/cpuinfo").read_text(), re.M):
        return "tcg"
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    verdict = folder() / "kvm"
    with locked(folder()):
        known = verdict.read_text().split() if verdict.exists() else []
        if known[:1] != [boot_id]:
            known = [boot_id, "kvm" if boots_with_kvm(image) else "tcg"]
            verdict.write_text(" ".join(known) + "\n")
    return known[1]
