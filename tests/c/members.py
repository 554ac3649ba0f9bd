"""Compares the classes of the public headers with ropewalk.h: each member must have its function, or member, there."""
from clang.cindex import AccessSpecifier, CursorKind, Diagnostic, Index
from header import HEADER

# Methods, by the prefixes of their functions.
CLASSES = {"Communicator": ("rw_comm_", "rw_"), "Work": ("rw_work_",), "Plan": ("rw_plan_",),
           "StateSync": ("rw_state_sync_",), "Rendezvous": ("rw_rendezvous_",), "AllReduceSgd": ("rw_sgd_",),
           "AllReduceEa": ("rw_ea_",), "AsyncEa": ("rw_async_ea_",), "ElasticAsyncEa": ("rw_elastic_ea_",),
           "PartialAllReduce": ("rw_partial_",)}
# Data, by the structure that has it.
STRUCTURES = {"Call": "rw_call", "ReduceOp": "rw_call", "Options": "rw_options", "Epoch": "rw_epoch",
              "Departure": "rw_departure", "Failure": "rw_failure", "StateReport": "rw_state_report",
              "NamedBuffer": "rw_named_buffer", "AsyncEaOptions": "rw_async_ea_options", "Membership": "rw_membership",
              "PartialSum": "rw_partial_sum"}
OTHER_NAMES = {"Communicator::allocate": "rw_mem_alloc", "Communicator::plan": "rw_plan_create",
               "Communicator::all_reduce_committed": "rw_run_committed",
               "Communicator::start_sync_state": "rw_state_sync_start", "StateSync::done": "rw_state_sync_test",
               "Rendezvous::options": "rw_rendezvous_join", "ReduceOp::kind": "op", "Options::size": "ranks",
               "Membership::size": "ranks", "Failure::code": "status"}
# Lengths of C++'s ranges, which pointers have not.
LEFT_OUT = {"Call::in_count", "Call::out_count"}
# What C has as arguments, numbers or text, and what only those who write transports see.
NOT_OF_C = {"float16", "bfloat16", "Buffer", "Extent", "Agreed", "StateSource", "Error", "ForkGuard"}


def public_classes():
    """(name, public methods, public data) of each."""
    others = [path for path in sorted(HEADER.parent.glob("*.h")) if path.name not in (HEADER.name, "transport.h")]
    text = "".join(f'#include "{path}"\n' for path in others)
    unit = Index.create().parse("all.h", args=["-x", "c++", "-std=c++20", f"-I{HEADER.parents[1]}"],
                                unsaved_files=[("all.h", text)])
    assert all(line.severity < Diagnostic.Error for line in unit.diagnostics), list(unit.diagnostics)
    names = {str(path) for path in others}
    spaces = [one for one in unit.cursor.get_children() if one.kind == CursorKind.NAMESPACE and one.spelling == "ropewalk"]
    for one in (one for space in spaces for one in space.get_children()):
        kinds = (CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.CLASS_TEMPLATE)
        if one.kind in kinds and one.is_definition() and one.location.file.name in names:
            public = [member for member in one.get_children() if member.access_specifier == AccessSpecifier.PUBLIC]
            methods = {member.spelling for member in public
                       if member.kind in (CursorKind.CXX_METHOD, CursorKind.FUNCTION_TEMPLATE)}
            yield (one.spelling, {name for name in methods if not name.startswith("operator")},
                   {member.spelling for member in public if member.kind == CursorKind.FIELD_DECL})


def missing(functions, structures):
    """Of functions' names, and of members' by structure: what C++ has beside them."""
    lacking, seen = [], set()
    for name, methods, data in public_classes():
        seen.add(name)
        wanted = {}
        if name in CLASSES:
            wanted = {method: [prefix + method for prefix in CLASSES[name]] for method in methods}
            known = functions
        elif name in STRUCTURES:
            wanted = {member: [member, f"{member}_ns"] for member in data}
            known = structures[STRUCTURES[name]]
        elif name not in NOT_OF_C:
            lacking.append(name)
        for member, words in wanted.items():
            full = f"{name}::{member}"
            words = [OTHER_NAMES[full]] if full in OTHER_NAMES else words
            if full not in LEFT_OUT and not any(word in known for word in words):
                lacking.append(full)
    assert seen >= CLASSES.keys() | STRUCTURES.keys(), seen
    return sorted(lacking)
