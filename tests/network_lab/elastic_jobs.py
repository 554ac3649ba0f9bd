"""Elastic jobs on several hosts, whose ranks or hosts are lost."""
import re
import tempfile
import unittest

from outcome import RATE, ROOT, ROPEWALK, Outcome

SUMS = ROOT / "build/tests/elastic/sums"
NETWORK_SSH = ROOT / "tests/network_lab/network_ssh"


class ElasticJobs(unittest.TestCase):
    """Six ranks on the first three hosts, two each, which check every sum."""

    SCRIPT = """
        cd {folder}
        {prepare}
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

    # No packet passes to or from a host that is cut off, and no connection tells of that.
    CUTS = f"""
        lab_ssh=$(command -v ssh)
        PATH={NETWORK_SSH}:$PATH
        for file in $NETLAB_FOLDER/h*.pid; do
            host=$(basename $file .pid)
            $lab_ssh $host "{NETWORK_SSH}/ssh --serve >/dev/null 2>&1 </dev/null &"
            until ssh $host -- echo here </dev/null 2>/dev/null | grep -q here; do sleep 0.1; done
        done
        left_on() {{ $lab_ssh $1 "pgrep -x 'ropewalk|sums' >/dev/null"; }}
        cut() {{ left_on $1 || exit 1; ip link set $1.0 down; await 0 "host $1 is lost"; }}
        await_empty() {{ while left_on $1; do sleep 0.1; done; }}"""

    def run_with(self, flags, size, kills, hosts=3, prepare=""):
        with tempfile.TemporaryDirectory() as folder:
            script = self.SCRIPT.format(folder=folder, ropewalk=ROPEWALK, flags=flags, sums=SUMS, size=size,
                                        kills=kills, prepare=prepare)
            outcome = Outcome("--rate", RATE, "--hosts", str(hosts), "--ranks-per-host", "2", script=script,
                              ROPEWALK_LINK_TIMEOUT="2")
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.out.count(f"ended with {size} ranks"), size, outcome)
        return outcome

    def expect_started(self, outcome, host, count):
        self.assertEqual(outcome.out.count(f"is started in its place on host {host}"), count, outcome)

    def test_all_ranks_of_any_host_are_started_again(self):
        outcome = self.run_with("--restart 6", 6, """
            for host in h0 h2 h0; do
                before=$(said 'has 6 ranks')
                ssh $host pkill -9 -x sums
                await $before 'has 6 ranks'
            done""")
        self.expect_started(outcome, "h0", 4)
        self.expect_started(outcome, "h2", 2)

    def test_goes_on_without_the_first_host(self):
        outcome = self.run_with("--restart 2", 4, "kill -9 $(cat $NETLAB_FOLDER/h0.pid); await 0 'has 4 ranks'")
        self.assertRegex(outcome.out, r"host h0 is lost: .* \(ranks 0, 1\); 4 go on")
        self.assertEqual(outcome.out.count("no host has free slots for ranks 0, 1"), 1, outcome)
        self.assertNotIn("in its place", outcome.out)
        self.assertEqual(re.findall(r"epoch \d+ has \d+ ranks", outcome.out), ["epoch 0 has 6 ranks", "epoch 1 has 4 ranks"], outcome)

    def test_a_spare_host_takes_the_ranks_of_a_killed_one(self):
        for host in ("h0", "h1"):  # rank 0's, and another
            with self.subTest(host):
                outcome = self.run_with("--restart 2", 6, f"""
                    kill -9 $(cat $NETLAB_FOLDER/{host}.pid); await 1 'has 6 ranks'""", hosts=4)
                self.assertIn(f"host {host} is lost: ", outcome.out)
                self.expect_started(outcome, "h3", 2)

    def run_cut(self, flags, size, kills, hosts):
        outcome = self.run_with(f"--host-timeout 4 {flags}", size, kills, hosts, self.CUTS)
        self.assertRegex(outcome.out, r"host h. is lost: nothing has come from its agent for \d+ s \(ranks ")
        return outcome

    def test_a_spare_host_takes_the_ranks_of_one_that_is_cut_off_where_nothing_is_left(self):
        for host in ("h0", "h1"):
            with self.subTest(host):
                outcome = self.run_cut("--restart 2", 6, f"""
                    cut {host}; await 1 'has 6 ranks'; await_empty {host}""", hosts=4)
                self.expect_started(outcome, "h3", 2)

    def test_a_host_that_was_cut_off_gets_its_ranks_again(self):
        outcome = self.run_cut("--restart 2", 6, """
            cut h2; await 0 'has 4 ranks'; await_empty h2; ip link set h2.0 up; await 1 'has 6 ranks'""", hosts=3)
        self.assertEqual(outcome.out.count("no host has free slots for ranks 4, 5"), 1, outcome)
        self.assertEqual(outcome.out.count("host h2 is there again"), 1, outcome)
        self.expect_started(outcome, "h2", 2)

    def test_goes_on_without_a_host_that_is_cut_off(self):
        outcome = self.run_cut("--restart 2", 4, "cut h0; await 0 'has 4 ranks'; await_empty h0", hosts=3)
        self.assertNotIn("in its place", outcome.out)
