"""What went wrong with the cluster itself, told apart from what its command returned."""
import sys

STATUS_TIMEOUT = 124
STATUS_LAB = 125


class Failure(Exception):
    def __init__(self, text, status=STATUS_LAB):
        super().__init__(text)
        self.status = status


def say(text):
    print(f"netlab: {text}", file=sys.stderr, flush=True)
