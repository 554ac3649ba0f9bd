// Communicator::split.
//
// Splitting is two all_gathers: of color and key, from which every rank computes the members of its
// part and their order; and of unique ids, since the first member of each part opens a rendezvous.
// Where that fails the unique id is empty: an error on each rank of the part, rather than a wait.
// Messages are not encrypted, so the key in these is only a nonce: the part's key is made of it and
// of the whole's, which never travels. A part is a communicator like any other, with sockets,
// control tree and threads of its own: its messages, deadlines and failures never mix with those of
// the whole.
#pragma once

#include <functional>
#include <memory>

#include "ropewalk/communicator.h"

namespace ropewalk {

/// Collective over `whole`. `common` holds what the parts take over: all except who and where;
/// `join` makes the communicator of this rank's part.
std::unique_ptr<Communicator> split_communicator(
    Communicator& whole, const Options& common, int color, int key,
    const std::function<std::unique_ptr<Communicator>(const Options&)>& join);

}  // namespace ropewalk
