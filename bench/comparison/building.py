"""Builds the contenders' programs."""
import json
import subprocess

from comparison.measuring import say


def quietly(*words):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"compare: failed: {' '.join(map(str, words))}\n{done.stdout[-4000:]}")
    return done.stdout


def refuse_slow_build(build):
    options = {one["name"]: one["value"]
               for one in json.loads(quietly("meson", "introspect", build, "--buildoptions"))}
    for name, wanted in (("buildtype", "release"), ("b_sanitize", "none")):
        if options.get(name, wanted) != wanted:
            raise SystemExit(f"compare: {build} has {name}={options[name]}, want {wanted}; "
                             "name another folder with --build")


def configure(root, build):
    """Also finds libraries that were installed after the build folder was made."""
    if not (build / "build.ninja").exists():
        quietly("meson", "setup", build, root, "--buildtype=release", "-Dpeers=enabled")
    else:
        refuse_slow_build(build)
        quietly("meson", "setup", "--reconfigure", "-Dpeers=enabled", build, root)


def build_programs(root, build):
    say(f"building in {build}")
    configure(root, build)
    quietly("ninja", "-C", build, "tools/ropewalk", "peers")
