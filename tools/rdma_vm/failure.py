"""What went wrong with the machine itself, told apart from what its command returned."""

import sys

STATUS_TIMEOUT = 124
STATUS_MACHINE = 125


class Failure(Exception):
    def __init__(self, text, status=STATUS_MACHINE):
        super().__init__(text)
        self.status = status


def say(text):
    print(f"rdma-vm: {text}", file=sys.stderr, flush=True)
