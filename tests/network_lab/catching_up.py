"""A newcomer gets the state of a job from all its ranks, while those train on."""
import json
import secrets
import unittest

from outcome import RATE, ROOT, Outcome

CATCH_UP = ROOT / "build/tests/elastic/catch_up"
STATE_MB = 100


class CatchingUp(unittest.TestCase):
    """Three ranks that train, and one that comes; each alone on its host."""

    SCRIPT = f"""
        start() {{
            ssh $1 env ROPEWALK_COORDINATOR=10.77.0.1:20000 ROPEWALK_JOB_KEY={secrets.token_hex(32)} \\
                $2 {CATCH_UP} {STATE_MB} &
        }}
        {{
            for rank in 0 1 2; do start h$rank "ROPEWALK_ELASTIC=1 ROPEWALK_SIZE=3 ROPEWALK_RANK=$rank"; done
            start h3 ROPEWALK_JOIN_RUNNING=1
        }} | cat
        for host in 0 1 2 3; do ssh h$host "sed -n 's/^ *eth0:/eth0 $host/p' /proc/net/dev"; done"""

    def test_its_link_is_full_and_the_others_train_on(self):
        outcome = Outcome("--hosts", "4", "--rate", RATE, script=self.SCRIPT)
        lines = outcome.out.splitlines()
        ranks = sorted((json.loads(line) for line in lines if line.startswith("{")), key=lambda rank: rank["rank"])
        self.assertEqual(len(ranks), 4, outcome)
        *members, newcomer = ranks
        counters = sorted(line.split()[1:] for line in lines if line.startswith("eth0"))
        taken, sent = int(counters[3][1]), [int(words[9]) for words in counters[:3]]

        link_bytes_s = float(RATE.removesuffix("mbit")) * 1e6 / 8
        begun = sorted(member["begun_s"] for member in members)
        since_first, since_last = (newcomer["received"] / (newcomer["arrived_s"] - at) / link_bytes_s
                                   for at in (begun[0], begun[-1]))
        print(f"\n{STATE_MB} MB at {RATE}: {newcomer['arrived_s'] - begun[0]:.2f} s since the first member sent, "
              f"{since_first:.2f} of the link; {since_last:.2f} since the last did; members' stop "
              f"{max(member['start_ms'] for member in members):.0f} ms "
              f"({max(member['start_cpu_ms'] for member in members):.0f} ms of a CPU), then "
              f"{newcomer['steps_meanwhile']} steps, the longest "
              f"{max(member['longest_step_ms'] for member in members):.0f} ms; "
              f"members sent {[number // 1_000_000 for number in sent]} MB, it took {taken // 1_000_000} MB")
        state = STATE_MB * 1_000_000
        self.assertEqual(newcomer["received"], state)
        self.assertGreater(since_last, 0.8, outcome)
        self.assertLess(taken, 1.15 * state, outcome)
        for number in sent:  # each about a third
            self.assertGreater(number, state / 4, outcome)
            self.assertLess(number, state / 2, outcome)
        self.assertGreater(newcomer["steps_meanwhile"], 20, outcome)
