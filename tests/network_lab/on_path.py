"""Somebody on the path between two hosts reads and changes what they send."""
import json
import unittest

from outcome import RATE, ROOT, ROPEWALK, Outcome


class OnThePath(unittest.TestCase):
    def run_past_relay(self, relay, *flags):
        words = f"""
            if test $ROPEWALK_RANK = 1; then
                {ROOT}/tests/network_lab/{relay} eth0 10.77.0.1 &
                until ip route show 10.77.0.1 | grep -q there; do sleep 0.01; done
            fi
            exec {ROPEWALK} bench all_reduce --sizes 256K --iterations 50 --json {' '.join(flags)}"""
        return Outcome("--rate", RATE, "--hosts", "2", "--launcher", f"{ROPEWALK} run --no-prefix", "--", "sh", "-c",
                       words)

    def wrong_of(self, outcome):
        self.assertNotEqual(outcome.out, "", outcome)
        self.assertIn("passed a hundred packets", outcome.err, outcome)
        return json.loads(outcome.out)["wrong"]

    def test_data_can_be_read(self):
        outcome = self.run_past_relay("relay")
        self.assertEqual(self.wrong_of(outcome), 0, outcome)
        self.assertIn("read ones", outcome.err, outcome)

    def test_sealed_data_cannot_be_read(self):
        outcome = self.run_past_relay("relay", "--secure")
        self.assertEqual(self.wrong_of(outcome), 0, outcome)
        self.assertNotIn("read ones", outcome.err, outcome)

    # Both ranks took sums that were wrong for right.
    def test_data_can_be_changed(self):
        outcome = self.run_past_relay("relay --change numbers")
        self.assertGreater(self.wrong_of(outcome), 0, outcome)

    def test_a_change_of_sealed_data_is_found(self):
        outcome = self.run_past_relay("relay --change any", "--secure")
        self.assertNotEqual(outcome.status, 0, outcome)
        self.assertIn("changed a packet", outcome.err, outcome)
        self.assertIn("the connection to rank 1 broke: it sent data that was changed on the way", outcome.err, outcome)
        self.assertEqual(outcome.out, "", outcome)
