// Nonblocking collectives. Each is a generalized request of the MPI, so programs mix it with the
// MPI's own in whatever they wait with. Ropewalk's progress thread moves it. That it has ended the
// MPI is told by the thread that looks: in MPI_Wait, MPI_Test and their like, which are taken for
// that and go on to the MPI's own. So no thread calls an MPI that allows only one.
#pragma once

#include "channel.h"
#include "functions.h"
#include "prepared.h"

namespace ropewalk::mpi {

/// Starts it; it is the request's then. Throws Error before anything has been sent.
void start_request(Channel& channel, std::unique_ptr<Prepared> prepared, MPI_Request* request);
/// Puts what waits for requests in place of the MPI's own.
void take_completions(Table& table);
/// Before MPI_Finalize: waits for those that the program has freed while they were under way.
void wait_for_freed_requests();

}  // namespace ropewalk::mpi
