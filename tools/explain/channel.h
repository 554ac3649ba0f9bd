// How the messages of a program would travel, told without memory or transports.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "engine/owner_program.h"
#include "engine/program.h"

namespace ropewalk::tools {

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
