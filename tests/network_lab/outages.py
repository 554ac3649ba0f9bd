"""Networks that fail while a job runs."""
import json
import re
import tempfile
import unittest

from outcome import PYTHON, RATE, ROOT, ROPEWALK, Outcome


class Outages(unittest.TestCase):
    """An adapter of host 1 is without its cable for a while; nothing but the network tells."""

    def run_with(self, cut, options, iterations, **variables):
        words = f"test $ROPEWALK_RANK != 1 || (sleep 1; {cut}) & " \
                f"exec {ROPEWALK} bench all_reduce --sizes 256K --iterations {iterations} --json"
        return Outcome("--rate", RATE, "--hosts", "3", *options, "--launcher", f"{ROPEWALK} run --no-prefix",
                       "--", "sh", "-c", words, **variables)

    # After 0.8 s the job ended.
    def test_three_seconds_without_a_network_are_survived(self):
        cut = "ip link set eth0 down; sleep 3; ip link set eth0 up; echo it is back >&2"
        outcome = self.run_with(cut, (), 400)
        self.assertEqual(outcome.status, 0, outcome)
        row = json.loads(outcome.out)
        self.assertEqual(row["wrong"], 0, outcome)
        self.assertIn("it is back", outcome.err)  # before the job, which cannot go on without, was over

    # A part whose first rank's network was down as they met had only that rank's loopback address, and waited for
    # the others for its whole timeout.
    def test_a_rank_whose_network_is_down_still_tells_its_address(self):
        outcome = Outcome("--hosts", "2", script=f"ssh h0 'ip link set eth0 down; {ROPEWALK} doctor'")
        self.assertRegex(outcome.out, r"interface choice: 10\.77\.0\.1:\d+ \(eth0\), 127\.0\.0\.1:", outcome)

    # All waited for the deadline, and then named a rank that had no part in it.
    def test_a_path_of_data_that_is_cut_is_named_with_both_ends(self):
        outcome = self.run_with("ip link set eth1 down", ("--nics", "2"), 1_000_000,
                                ROPEWALK_LINK_TIMEOUT="2")
        self.assertNotEqual(outcome.status, 0, outcome)
        said = re.findall(r"rank (\d) broke: nothing sent to it was acknowledged for ([\d.]+) s on the path "
                          r"10\.78\.0\.(\d):\d+ to 10\.78\.0\.(\d):\d+", outcome.err)
        self.assertTrue(said, outcome)
        for rank, seconds, own, other in said:
            self.assertEqual(int(rank) + 1, int(other), outcome)
            self.assertIn("2", (own, other), outcome)  # host 1's
            self.assertLess(float(seconds), 3, outcome)


class Partitions(unittest.TestCase):
    """Eight ranks on four hosts, of which some hear nothing of the others any more."""

    RANKS = range(8)
    # What a rank says is passed on line by line: nobody ends the others when it fails.
    SCRIPT = """
        said_by_all() { for rank in 0 1 2 3 4 5 6 7; do test -e $folder/$rank || return 1; done; }
        lose() { for host; do  # no adapter has that address
            ip neigh replace 10.77.0.$((host + 1)) lladdr 02:00:00:00:00:01 dev eth0 nud permanent
        done; }
        bench() {
            echo $BASHPID >$folder/$ROPEWALK_RANK.pid
            exec %(ropewalk)s bench all_reduce --sizes 256K --iterations 1000000
        }
        { until said_by_all; do sleep 0.1; done; sleep 0.5; %(cut)s; } &
        bench 2>&1 | while read -r line; do
            echo "$line" >&2
            case $line in *" joined 8 ranks in "*) touch $folder/$ROPEWALK_RANK;; esac
        done"""

    def failures_after(self, cut):
        """By rank, why the job has failed; for host number H and rank R."""
        script = self.SCRIPT % {"ropewalk": ROPEWALK,
                                "cut": f"H=$((ROPEWALK_RANK / 2)) R=$ROPEWALK_RANK; {cut}"}
        with tempfile.TemporaryDirectory() as folder:
            outcome = Outcome("--rate", RATE, "--hosts", "4", "--ranks-per-host", "2", "--launcher",
                              f"{ROPEWALK} run --no-prefix", "--", "bash", "-c", f"folder={folder}; {script}",
                              ROPEWALK_LOG="info", ROPEWALK_TIMEOUT="12", ROPEWALK_LINK_TIMEOUT="2")
        found = re.findall(r"rank (\d).*: the job has failed: (.*)", outcome.err)
        return {int(rank): text for rank, text in found}, outcome

    def expect_lost(self, failures, ranks, text, outcome):
        for rank in ranks:
            self.assertIn(f": {text}", failures.get(rank, "nothing"), f"rank {rank}: {outcome}")

    # Each side named the rank with which a link happened to break first.
    def test_each_half_names_all_of_the_other(self):
        failures, outcome = self.failures_after("case $H in 0|1) lose 2 3;; *) lose 0 1;; esac")
        self.expect_lost(failures, range(4), "ranks 4-7 (hosts h2, h3) cannot be reached: ", outcome)
        self.expect_lost(failures, range(4, 8), "ranks 0-3 (hosts h0, h1) cannot be reached: ", outcome)

    def test_a_host_alone_is_named_and_names_all_others(self):
        failures, outcome = self.failures_after("case $H in 1) lose 0 2 3;; *) lose 1;; esac")
        self.expect_lost(failures, (0, 1, 4, 5, 6, 7), "ranks 2, 3 (host h1) cannot be reached: ", outcome)
        self.expect_lost(failures, (2, 3), "ranks 0, 1, 4-7 (hosts h0, h2, h3) cannot be reached: ", outcome)

    def test_the_host_of_the_coordinator_is_no_exception(self):
        failures, outcome = self.failures_after("case $H in 0) lose 1 2 3;; *) lose 0;; esac")
        self.expect_lost(failures, range(2, 8), "ranks 0, 1 (host h0) cannot be reached: ", outcome)
        self.expect_lost(failures, (0, 1), "ranks 2-7 (hosts h1, h2, h3) cannot be reached: ", outcome)

    def test_a_stopped_rank_of_a_host_that_answers_is_named_alone(self):
        stop = "test $R != 5 || { pid=$(cat $folder/5.pid); kill -STOP $pid; sleep 12; kill -KILL $pid; }"
        failures, outcome = self.failures_after(stop)
        for rank in set(self.RANKS) - {5}:
            self.assertRegex(failures.get(rank, "nothing"), r"rank \d gave rank 5 \(h2, pid \d+\) up", outcome)
            self.assertNotIn("cannot be reached", failures[rank], outcome)


class Epochs(unittest.TestCase):
    """Four hosts, of which some are cut off: those that are more than half form the next epoch."""

    def said_after(self, cut):
        """By rank, what it printed; H is the number of a rank's host."""
        words = """
            lose() { for host; do  # no adapter has that address
                ip neigh replace 10.77.0.$((host + 1)) lladdr 02:00:00:00:00:01 dev eth0 nud permanent
            done; }
            joined() { for rank in 0 1 2 3; do test -e $folder/$rank || return 1; done; }
            H=$ROPEWALK_RANK
            { until joined; do sleep 0.1; done; sleep 0.3; %s; } &
            %s %s/tests/network_lab/elastic_rank $folder/sums &
            until test -e $folder/sums.$H; do sleep 0.05; done
            touch $folder/$H
            wait %%2""" % (cut, PYTHON, ROOT)
        with tempfile.TemporaryDirectory() as folder:
            outcome = Outcome("--rate", RATE, "--hosts", "4", "--launcher", f"{ROPEWALK} run --no-prefix --grace 20s",
                              "--", "bash", "-mc", f"folder={folder}; {words}",
                              ROPEWALK_TIMEOUT="8", ROPEWALK_LINK_TIMEOUT="2")
        rows = [json.loads(line) for line in outcome.out.splitlines()]
        return {row["rank"]: row for row in rows}, outcome

    def test_three_of_four_go_on_without_the_one_that_is_cut_off(self):
        said, outcome = self.said_after("case $H in 0) lose 1 2 3;; *) lose 0;; esac")
        for rank in (1, 2, 3):
            row = said.get(rank, {})
            self.assertEqual([row.get("lost"), row.get("size"), row.get("left")], [[0], 3, [[0, False]]], outcome)
        self.assertIn("reached 1 of 4 members (0)", said.get(0, {}).get("no_quorum", ""), outcome)

    def test_neither_half_goes_on(self):
        said, outcome = self.said_after("case $H in 0|1) lose 2 3;; *) lose 0 1;; esac")
        for rank in range(4):
            self.assertIn("more than half must go on together", said.get(rank, {}).get("no_quorum", ""), outcome)
