"""tools/netlab for who is not root."""
import json
import os
import subprocess
import tempfile
import unittest

from outcome import NETLAB, RATE, ROOT, ROPEWALK

OTHER_USER = 65534  # nobody; it has to be able to read this folder


def words_as_another_user():
    return ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"] if os.geteuid() == 0 else []


class Rootless(unittest.TestCase):
    def test_runs_a_job_where_user_namespaces_are_allowed_and_else_says_so(self):
        other = words_as_another_user()
        allowed = subprocess.run([*other, "unshare", "--user", "--map-root-user", "true"], check=False,
                                 stderr=subprocess.DEVNULL).returncode == 0
        with tempfile.TemporaryDirectory() as home:
            os.chmod(home, 0o777)
            command = [*other, str(NETLAB), "--hosts", "3", "--ranks-per-host", "2", "--rate", RATE, "--launcher",
                       f"{ROPEWALK} run --no-prefix", "--", str(ROPEWALK), "bench", "all_reduce", "--sizes", "8,256K",
                       "--json"]
            done = subprocess.run(command, cwd=ROOT, env=os.environ | {"HOME": home, "TMPDIR": home}, timeout=120,
                                  text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  check=False)
        told = f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        if not allowed:
            self.assertEqual(done.returncode, 125, told)
            self.assertIn("run netlab as root, or allow user namespaces", done.stderr)
            return
        self.assertEqual(done.returncode, 0, told)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(row["ranks"], row["transport"], row["wrong"]) for row in rows], [(6, "shm+tcp", 0)] * 2, told)
