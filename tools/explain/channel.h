// How the messages of a program travel, by the rules of src/engine/prepare.cc, told without memory
// or transports. channel_test.cc holds the two against each other.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "engine/owner_program.h"
#include "engine/program.h"

namespace ropewalk::tools {

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
std::string_view name_of(MessageProtocol protocol);
/// A sentence's end: "...added where they lie in the senders' memory".
std::string_view describe(MessageProtocol protocol, bool sending);

/// What a rank's memory and its links are.
struct ChannelSetting {
  std::function<bool(int peer)> is_mapped;
  std::function<bool(const std::byte* address, size_t bytes)> is_registered;
};

/// One entry per step; steps without a peer are `stored`. What a peer does with what is put into
/// its memory is taken to be what this rank would do.
std::vector<MessageProtocol> protocols_of(const Program& program, const ChannelSetting& setting);

/// Messages of one kind.
struct Traffic {
  bool sending = false;
  bool mapped = false;
  MessageProtocol protocol = MessageProtocol::eager;
  size_t messages = 0, bytes = 0, bytes_max = 0;
};
/// What a rank sends and receives, by kind, in the order in which the kinds first occur.
std::vector<Traffic> traffic_of(const Program& program, const ChannelSetting& setting);
std::vector<Traffic> traffic_of(const OwnerProgram& program, const ChannelSetting& setting);

}  // namespace ropewalk::tools
