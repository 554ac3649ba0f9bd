"""Another version of Ropewalk beside this one: the rows of cases.py that it can be measured on."""
import dataclasses
import types

from comparison import cases, report

TIME_RATIO_MAX = 1.01


def beside(contender, build):
    return dataclasses.replace(contender, name=f"{contender.name} before", build=build)


def compared(case, build):
    """The case with nobody but Ropewalk, in both versions."""
    own = [one for one in case.contenders if one.launcher == "ropewalk" and one.name == "Ropewalk"]
    return dataclasses.replace(case, contenders=tuple(one for mine in own
                                                      for one in (mine, beside(mine, build))))


def suite(build):
    """`build`: the other version's build folder, with the target peers built in it."""
    return types.SimpleNamespace(
        FLAG="before", ROUNDS=9, PACKAGES={}, VERSIONS={}, PLOTS=(), bounds=cases.bounds,
        CASES=[compared(case, build) for case in cases.CASES],
        COLUMNS=report.judged("Ropewalk before"),
        ROWS=[dataclasses.replace(row, wants=(cases.Want.time_at_most(TIME_RATIO_MAX,
                                                                      "Ropewalk before"),))
              for row in cases.ROWS])
