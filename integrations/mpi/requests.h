// Nonblocking and persistent collectives. A nonblocking one is a generalized request of the MPI; a
// persistent one has the handle of a persistent message to this rank itself, which is sent and
// received once the collective has ended. (MPICH never tells the end of one to MPI_PROC_NULL.) So
// programs mix them with the MPI's own in whatever they wait with.
// Ropewalk's progress thread moves them. That one has ended the MPI is told by the thread that
// looks: in MPI_Wait, MPI_Test and their like, which are taken for that and go on to the MPI's own.
// So no thread calls an MPI that allows only one. Until then the MPI does not see it there.
// To the MPI all of them end well, as it would call another communicator's error handler.
#pragma once

#include <memory>

#include "channel.h"
#include "functions.h"
#include "prepared.h"

namespace ropewalk::mpi {

/// Starts it; it is the request's then. Throws Error before anything has been sent.
void start_request(Channel& channel, std::unique_ptr<Prepared> prepared, MPI_Request* request);
/// Collective of the channel. Throws Error, std::bad_alloc.
void make_persistent_request(Channel& channel, std::unique_ptr<Prepared> prepared,
                             MPI_Request* request);
/// Puts what starts requests and waits for them in place of the MPI's own.
void take_requests(Table& table);

}  // namespace ropewalk::mpi
