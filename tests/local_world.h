// Jobs inside one process, for tests: every rank is a thread with a communicator of its own.
#pragma once

#include <functional>
#include <string>

#include "ropewalk/communicator.h"

namespace ropewalk::testing {

/// A socket that listens on a free port of the loopback interface, for rank 0 to take over, and its
/// "host:port".
int listen_on_loopback(std::string& address);

/// Runs `body` on `ranks` ranks over `transport` ("shm", "tcp") and waits for all. The first
/// exception of a rank is thrown again here, when all have ended. `adjust` may change the options
/// of each rank.
void run_ranks(int ranks, const std::string& transport,
               const std::function<void(Communicator&)>& body,
               const std::function<void(int rank, Options&)>& adjust = {});

/// An all_reduce to which each rank brings its number, `count` times.
void expect_sum_of_ranks(Communicator& comm, size_t count);

}  // namespace ropewalk::testing
