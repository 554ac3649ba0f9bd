// How a message of a program travels: what executors do, and what `ropewalk explain` tells. Pure.
#pragma once

#include "engine/program.h"
#include "engine/wire.h"

namespace ropewalk {

enum class MessageProtocol {
  eager,             // whole, behind its header, into a slot of the receiver's inbox
  read_by_owner,     // not moved: the block's owner reads it where it lies
  read_in_place,     // not moved: added where it lies in the sender's memory
  read_from_copy,    // copied by the sender into staging memory that the peer maps; added there
  written_by_owner,  // the owner of the block writes it straight into its final place
  through_window,    // the owner reads or writes a window, from or to which the contributor copies
  stored,            // put straight into its final place
  staged,            // put into the receiver's staging memory; added or copied from there
};

constexpr bool is_eager(const ProgramStep& step) {
  return step.bytes <= kEagerBytesMax;
}

/// Whether what is to be added stays with its sender. `mapped`: the two ranks map each other's
/// memory.
constexpr bool is_exposed(const ProgramStep& step, bool mapped) {
  return mapped && !is_eager(step) && (step.for_reduce || step.action == Action::receive_reduce);
}

/// `known`: whether peers can reach the memory of an exposed source, or of a target. A sender
/// cannot know that of its peer's target.
constexpr MessageProtocol protocol_of(const ProgramStep& step, bool mapped, bool known) {
  if (is_eager(step)) return MessageProtocol::eager;
  if (is_exposed(step, mapped))
    return step.action == Action::send && !known ? MessageProtocol::read_from_copy
                                                 : MessageProtocol::read_in_place;
  const bool adds = step.for_reduce || step.action == Action::receive_reduce;
  return known && !adds ? MessageProtocol::stored : MessageProtocol::staged;
}

}  // namespace ropewalk
