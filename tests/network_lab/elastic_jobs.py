"""Elastic jobs on several hosts, whose ranks are killed and started again."""
import re
import tempfile
import unittest

from outcome import RATE, ROOT, ROPEWALK, Outcome

SUMS = ROOT / "build/tests/elastic/sums"


class ElasticJobs(unittest.TestCase):
    """Six ranks on three hosts, two each, which check every sum."""

    SCRIPT = """
        cd {folder}
        {ropewalk} run --elastic 2:6 {flags} --hosts $NETLAB_HOSTS -- {sums} {size} {folder}/end >out 2>&1 &
        job=$!
        said() {{ grep -c "$1" out; }}
        await() {{ until test $(said "$2") -gt $1; do kill -0 $job || {{ cat out; exit 1; }}; sleep 0.05; done; }}
        await 0 'epoch 0 has 6 ranks'
        {kills}
        touch end
        wait $job; status=$?
        cat out
        exit $status"""

    def run_with(self, flags, size, kills):
        with tempfile.TemporaryDirectory() as folder:
            script = self.SCRIPT.format(folder=folder, ropewalk=ROPEWALK, flags=flags, sums=SUMS, size=size,
                                        kills=kills)
            outcome = Outcome("--rate", RATE, "--hosts", "3", "--ranks-per-host", "2", script=script,
                              ROPEWALK_LINK_TIMEOUT="2")
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.out.count(f"ended with {size} ranks"), size, outcome)
        return outcome

    def test_all_ranks_of_any_host_are_started_again(self):
        outcome = self.run_with("--restart 6", 6, """
            for host in h0 h2 h0; do
                before=$(said 'has 6 ranks')
                ssh $host pkill -9 -x sums
                await $before 'has 6 ranks'
            done""")
        self.assertEqual(outcome.out.count("is started in its place on host h0"), 4, outcome)
        self.assertEqual(outcome.out.count("is started in its place on host h2"), 2, outcome)

    def test_goes_on_without_the_first_host(self):
        outcome = self.run_with("--restart 2", 4, "kill -9 $(cat $NETLAB_FOLDER/h0.pid); await 0 'has 4 ranks'")
        self.assertRegex(outcome.out, r"host h0 is lost: .* \(ranks 0, 1\); 4 go on")
        self.assertNotIn("in its place", outcome.out)
        self.assertEqual(re.findall(r"epoch \d+ has \d+ ranks", outcome.out), ["epoch 0 has 6 ranks", "epoch 1 has 4 ranks"], outcome)
