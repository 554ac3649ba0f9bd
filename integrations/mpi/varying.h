// Blocking collectives in which each rank's part has a length of its own, of which only that rank
// and the root know: MPI_Gatherv and MPI_Scatterv.
//
// One collective moves a head of fixed length between the root and each rank: how long the part is,
// and its bytes where they are few. Longer parts follow, as messages between the two. So who
// receives has learned the length before: where it has more room than that, only what is sent is
// written, and a part for which it lacks room goes elsewhere, as in MPI.
#pragma once

#include <functional>
#include <optional>

#include "bytes.h"
#include "channel.h"

namespace ropewalk::mpi {

/// The root's part of or for a rank, in the root's buffer.
using PartOf = std::function<Bytes(int rank)>;

/// `own`: what this rank sends; nothing where the root's lies in its place. `part_of`: called by
/// the root alone. Throws Error; Refusal where some part was too long, when all others have been
/// received.
void gather_varying(Channel& channel, std::optional<Bytes> own, const PartOf& part_of, int root);
/// `own`: where this rank receives; nothing where the root's stays in its place. Throws the same.
void scatter_varying(Channel& channel, const PartOf& part_of, std::optional<Bytes> own, int root);

}  // namespace ropewalk::mpi
