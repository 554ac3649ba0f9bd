// Joining a job from Python, which may take for ever, and which signals end.
#pragma once

#include <memory>

#include "ropewalk/communicator.h"
#include "session.h"

namespace ropewalk::python {

/// Joins in a thread of its own, and looks every 100 ms whether a signal's handler has raised, or
/// `stop`, None or a threading.Event, is set: either ends joining. With the GIL. Throws Error, and
/// what the handler has raised.
std::shared_ptr<Session> join_job(Options options, const nanobind::object& stop);

}  // namespace ropewalk::python
