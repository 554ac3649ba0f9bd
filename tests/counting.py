"""Runs the tests of the program that calls, and counts them on the last line."""
import sys
import unittest


class _Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def are_there(*programs):
    """Says which of them, made by tools/test, is missing."""
    for program in programs:
        if not program.exists():
            print(f"{program} is not there; see the head of {sys.argv[0]}\n0 passed, 1 failed")
            return False
    return True


def count_tests():
    """The exit status."""
    result = unittest.main(exit=False, verbosity=2,
                           testRunner=unittest.TextTestRunner(resultclass=_Result, verbosity=2)).result
    # What fails before the tests of a class is none that was run.
    failed = max(result.testsRun - result.passed, len(result.errors) + len(result.failures))
    sys.stderr.flush()
    print(f"{result.passed} passed, {failed} failed", flush=True)
    return 0 if result.passed and not failed else 1
