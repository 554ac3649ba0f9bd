#!/usr/bin/env python3
"""What MPItrampoline looks up, without what is written by hand: generate.py SYMBOLS DONE [--header]

SYMBOLS: a file with a name a line. In capitals: a constant, which the library may choose, so each is a number of its
own. Else a function: one that DONE, the sources written by hand, does not define says that it is missing.
Prints C++; with --header the constants' declarations.
"""
import pathlib
import re
import sys

# MPI demands these, or an order among them. Error classes are small, handles and flags of any value.
VALUES = {"MPIABI_SUCCESS": 0, "MPIABI_UNDEFINED": -32766, "MPIABI_PROC_NULL": -1, "MPIABI_ANY_SOURCE": -2,
          "MPIABI_ROOT": -3, "MPIABI_ANY_TAG": -1, "MPIABI_BOTTOM": 0, "MPIABI_IN_PLACE": -1,
          "MPIABI_STATUS_IGNORE": 0, "MPIABI_STATUSES_IGNORE": 0, "MPIABI_THREAD_SINGLE": 0,
          "MPIABI_THREAD_FUNNELED": 1, "MPIABI_THREAD_SERIALIZED": 2, "MPIABI_THREAD_MULTIPLE": 3}


def main(symbols, done, as_header):
    names = pathlib.Path(symbols).read_text().split()
    written = set(re.findall(r"^int (MPIABI_\w+)\(", pathlib.Path(done).read_text(), re.M))
    constants = [name for name in names if name.isupper()]
    functions = [name for name in names if not name.isupper()]
    if not written <= set(functions):
        sys.exit(f"generate.py: {written - set(functions)} are not among {symbols}")
    lines = ['#pragma GCC visibility push(default)', 'extern "C" {']
    if as_header:
        lines = ["#pragma once", "#include <cstdint>", *lines]
        lines += [f"extern const intptr_t {name};" for name in constants]
    else:
        lines = ['#include "constants.h"', '#include "missing.h"', *lines]
        lines += [f"extern const intptr_t {name} = {VALUES.get(name, number)};"
                  for number, name in enumerate(constants, 1)]
        lines += [f'int {name}() {{ return ropewalk::jax::is_missing("{name}"); }}'
                  for name in functions if name not in written]
    print("\n".join([*lines, "}", "#pragma GCC visibility pop"]))


main(sys.argv[1], sys.argv[2], "--header" in sys.argv)
