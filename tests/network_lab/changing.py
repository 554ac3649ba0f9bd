"""A link that becomes slower while a job runs."""
import json
import unittest

from outcome import RATE, ROPEWALK, Outcome

# The second row of the same calls goes over the slow link. With slices as short as these nothing is tried.
SCRIPT = f"""
    export ROPEWALK_SLICE_BYTES=16384
    {ROPEWALK} run --no-prefix --hosts $NETLAB_HOSTS -- {ROPEWALK} bench all_reduce --json --algorithm auto \\
        --sizes 128K,128K --iterations 350 | while read -r row; do
            echo "$row"
            tc qdisc change dev h1.0 root tbf rate 20mbit burst 32k latency 50ms
        done"""


class ChangingLinks(unittest.TestCase):
    def test_are_told_and_the_job_goes_on(self):
        outcome = Outcome("--hosts", "3", "--rate", RATE, script=SCRIPT)
        self.assertEqual(outcome.status, 0, outcome)
        rows = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
        self.assertEqual([row["wrong"] for row in rows], [0, 0], outcome)
        self.assertGreater(rows[1]["median_us"], 3 * rows[0]["median_us"], outcome)
        told = [line for line in outcome.err.splitlines() if "may have become slower" in line]
        self.assertEqual(len(told), 1, outcome)
        self.assertRegex(told[0], r"rank 0\] warn: all_reduce of 128 KiB by \w+ takes [\d.]+ m?s, and took [\d.]+ ms "
                                  r"before; predicted were [\d.]+ ms\. .*`ropewalk tune`")
