"""Schedules that are made for the network: netlab tells the job how it is."""
import json
import pathlib
import subprocess
import tempfile
import unittest

from outcome import NETLAB, RATE, ROPEWALK, Outcome

RUN = ("--launcher", f"{ROPEWALK} run --no-prefix")
SLOW = ("--hosts", "4", "--rate", RATE, "--host", "3:rate=100mbit")
RACKS = ("--hosts", "4", "--rate", RATE, "--racks", "2", "--uplink", "100mbit")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")


def can_synthesize():
    said = subprocess.run([ROPEWALK, "simulate", "all_reduce", "--bytes", "1M", "--algorithm", "synthesized",
                           "--network", "racks:2x2:uplink=8"], stdout=subprocess.DEVNULL, check=False)
    return said.returncode == 0


@unittest.skipUnless(can_synthesize(), "this build is without Boost.Graph")
class Described(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bench(self, network, collective, *options, **variables):
        """Every rank checks each element of its results."""
        return Outcome(*network, *RUN, "--", str(ROPEWALK), "bench", collective, "--json", *options,
                       ROPEWALK_LOG="info", **variables)

    def rows(self, outcome):
        self.assertEqual(outcome.status, 0, outcome)
        rows = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
        self.assertEqual({row["wrong"] for row in rows}, {0}, outcome)
        return {row["bytes"]: row["algorithm"] for row in rows}

    def test_is_chosen_where_a_host_is_slow_or_racks_are_joined_by_thin_links(self):
        for network in (SLOW, RACKS):
            outcome = self.bench(network, "all_reduce", "--sizes", "8,2M")
            chosen = self.rows(outcome)
            self.assertNotEqual(chosen[8], "synthesized", outcome)
            self.assertEqual(chosen[2 << 20], "synthesized", outcome)
            self.assertRegex(outcome.err, r"made a schedule of all_reduce for 4 ranks in [^:]*proof took [^:]*: "
                                          r"\d+ trees of depth \d+")
            self.assertRegex(outcome.err, r"all_reduce of 2 MiB, simulated: synthesized takes")

    def test_is_not_chosen_where_hosts_are_alike_or_nothing_is_described(self):
        alike = self.bench(("--hosts", "4", "--rate", RATE), "all_reduce", "--sizes", "2M")
        unknown = self.bench(SLOW, "all_reduce", "--sizes", "2M", ROPEWALK_NETWORK="")
        for outcome in (alike, unknown):
            self.assertNotIn("synthesized", self.rows(outcome).values())
            self.assertNotIn("made a schedule", outcome.err)

    def test_runs_every_collective_of_any_length_by_force(self):
        shape = self.folder / "shape.json"
        shape.write_text(json.dumps({
            "hosts": [{"name": "h0", "ranks": 2}, {"name": "h1"}, {"name": "h2", "ranks": 3}],
            "switches": [{"name": "s0"}],
            "links": [{"between": [f"h{host}", "s0"], "rate_mbps": 200 * (host + 1)} for host in range(3)]}))
        for collective in COLLECTIVES:
            outcome = self.bench(("--shape", str(shape)), collective, "--sizes", "4,100,100K,1M",
                                 ROPEWALK_ALGORITHM="synthesized")
            self.assertEqual(set(self.rows(outcome).values()), {"synthesized"}, outcome)

    def test_a_description_of_other_hosts_is_told(self):
        other = self.folder / "other.json"
        made = subprocess.run([NETLAB, "--hosts", "3", "--rate", RATE, "--print-shape"], text=True,
                              stdout=subprocess.PIPE, check=True)
        other.write_text(made.stdout)
        for network, why in ((str(other), "3 hosts are described, and the job has 4"),
                             ("/no/such/file", "cannot read"), ("flat:hosts=many", "many")):
            outcome = self.bench(SLOW, "all_reduce", "--sizes", "2M", ROPEWALK_NETWORK=network)
            self.assertNotIn("synthesized", self.rows(outcome).values())
            self.assertIn("the description of the network is not used: ", outcome.err)
            self.assertIn(why, outcome.err)
        forced = self.bench(SLOW, "all_reduce", "--sizes", "2M", ROPEWALK_NETWORK=str(other),
                            ROPEWALK_ALGORITHM="synthesized")
        self.assertNotEqual(forced.status, 0, forced)
        self.assertIn("3 hosts are described", forced.err)

    def test_a_description_of_the_whole_cluster_serves_a_job_on_some_hosts(self):
        """Each of which has other ranks than are described."""
        whole = self.folder / "whole.json"
        made = subprocess.run([NETLAB, "--hosts", "8", "--ranks-per-host", "2", "--rate", RATE, "--host",
                               "3:rate=100mbit", "--print-shape"], text=True, stdout=subprocess.PIPE, check=True)
        whole.write_text(made.stdout)
        outcome = self.bench(SLOW, "all_reduce", "--sizes", "2M", ROPEWALK_NETWORK=str(whole))
        self.assertEqual(self.rows(outcome)[2 << 20], "synthesized", outcome)
        self.assertNotIn("is not used", outcome.err)
        self.assertIn("made a schedule of all_reduce for 4 ranks", outcome.err)

    def test_without_a_description_it_cannot_be_forced(self):
        outcome = self.bench(SLOW, "all_reduce", "--sizes", "2M", ROPEWALK_NETWORK="",
                             ROPEWALK_ALGORITHM="synthesized")
        self.assertNotEqual(outcome.status, 0, outcome)
        self.assertIn("nothing is known of the network", outcome.err)
        self.assertIn("ROPEWALK_NETWORK", outcome.err)

    def test_is_measured_by_tune_beside_the_algorithms(self):
        path = self.folder / "tuned.json"
        outcome = Outcome(*SLOW, *RUN, "--", str(ROPEWALK), "tune", "--jobs", "4", "--collectives", "all_reduce",
                          "--sizes", "2M", "--output", str(path))
        self.assertEqual(outcome.status, 0, outcome)
        self.assertRegex(outcome.out, r"\[1 of 1\] all_reduce of 2M, 4 ranks: .*, synthesized [\d.e+]+ us")
        profile = json.loads(path.read_text())
        self.assertNotIn("synthesized", profile["jobs"][0]["calls"][0]["us"])
        self.assertEqual([host["name"] for host in profile["network"]["hosts"]], ["h0", "h1", "h2", "h3"])

    def test_explain_tells_of_it(self):
        shape = self.folder / "slow.json"
        made = subprocess.run([NETLAB, *SLOW, "--print-shape"], text=True, stdout=subprocess.PIPE, check=True)
        shape.write_text(made.stdout)
        words = [ROPEWALK, "explain", "all_reduce", "--bytes", "2M", "--network", shape, "--transport", "tcp"]
        told = subprocess.run(words, text=True, stdout=subprocess.PIPE, check=True).stdout
        self.assertIn("4 ranks on 4 hosts", told)
        self.assertIn("algorithm  synthesized", told)
        self.assertRegex(told, r"synthesized: \d+ trees of depth \d+")
        self.assertRegex(told, r"link +h3")
