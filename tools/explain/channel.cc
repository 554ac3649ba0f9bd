#include "tools/explain/channel.h"

#include <algorithm>

namespace ropewalk::tools {
namespace {

/// Without mapping any memory can be registered for the call (MemoryBinder::target). Of what it
/// sends to be stored, a rank takes its peer's target to be like its own memory.
MessageProtocol protocol_of(const ProgramStep& step, const ChannelSetting& setting) {
  const bool mapped = setting.is_mapped(step.peer);
  const std::byte* place = step.action == Action::send ? step.source : step.target;
  return ropewalk::protocol_of(step, mapped, !mapped || setting.is_registered(place, step.bytes));
}

}  // namespace

std::string_view name_of(MessageProtocol protocol) {
  constexpr std::string_view kNames[] = {
      "eager",          "read_by_owner", "read_in_place", "read_from_copy", "written_by_owner",
      "through_window", "stored",        "staged"};
  return kNames[static_cast<size_t>(protocol)];
}

std::string_view describe(MessageProtocol protocol, bool sending) {
  switch (protocol) {
    case MessageProtocol::eager:
      return "behind the header, in a slot of the inbox";
    case MessageProtocol::read_by_owner:
      return sending ? "nothing moves: the parts' owners read them where they lie"
                     : "read where they lie in the peers' memory, all in one pass";
    case MessageProtocol::read_in_place:
      return sending ? "nothing moves: peers add them where they lie"
                     : "added where they lie in the peers' memory";
    case MessageProtocol::read_from_copy:
      return "plain memory: copied to staging memory, where peers add them";
    case MessageProtocol::written_by_owner:
      return sending ? "written in the same pass straight into the peers' buffers"
                     : "written into their final place by the parts' owners";
    case MessageProtocol::through_window:
      return sending ? "plain memory: copied to a window in cache, where owners read them"
                     : "plain memory: copied from a window in cache, which owners write";
    case MessageProtocol::stored:
      return "put straight into their final place";
    case MessageProtocol::staged:
      return sending ? "put into the peers' staging memory"
                     : "put into staging memory, then added or copied";
  }
  return {};
}

std::vector<MessageProtocol> protocols_of(const Program& program, const ChannelSetting& setting) {
  std::vector<MessageProtocol> protocols(program.steps.size(), MessageProtocol::stored);
  for (size_t i = 0; i < protocols.size(); ++i)
    if (program.steps[i].peer >= 0) protocols[i] = protocol_of(program.steps[i], setting);
  return protocols;
}

namespace {

/// Adds one message to its kind.
void count(std::vector<Traffic>& kinds, const Traffic& message) {
  auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Traffic& t) {
    return t.sending == message.sending && t.mapped == message.mapped &&
           t.protocol == message.protocol;
  });
  if (kind == kinds.end())
    kind = kinds.insert(kinds.end(), {message.sending, message.mapped, message.protocol});
  ++kind->messages;
  kind->bytes += message.bytes;
  kind->bytes_max = std::max(kind->bytes_max, message.bytes);
}

}  // namespace

std::vector<Traffic> traffic_of(const Program& program, const ChannelSetting& setting) {
  const std::vector<MessageProtocol> protocols = protocols_of(program, setting);
  std::vector<Traffic> kinds;
  for (size_t i = 0; i < protocols.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    if (step.peer >= 0)
      count(kinds, {step.action == Action::send, setting.is_mapped(step.peer), protocols[i], 1,
                    step.bytes});
  }
  return kinds;
}

std::vector<Traffic> traffic_of(const OwnerProgram& program, const ChannelSetting& setting) {
  std::vector<Traffic> kinds;
  const auto contributor_protocol = [&](const std::byte* at, size_t bytes, MessageProtocol direct) {
    return setting.is_registered(at, bytes) ? direct : MessageProtocol::through_window;
  };
  for (const OwnerPeer& owner : program.peers) {
    if (owner.in != nullptr)
      count(kinds, {true, true,
                    contributor_protocol(owner.in, owner.bytes, MessageProtocol::read_by_owner), 1,
                    owner.bytes});
    if (owner.out != nullptr)
      count(kinds, {false, true,
                    contributor_protocol(owner.out, owner.bytes, MessageProtocol::written_by_owner),
                    1, owner.bytes});
  }
  for (const OwnedBlock& block : program.owned) {
    for (size_t i = 0; i < block.sources.size(); ++i)
      count(kinds, {false, true, MessageProtocol::read_by_owner, 1, block.bytes});
    for (size_t i = 0; i < block.targets.size(); ++i)
      count(kinds, {true, true, MessageProtocol::written_by_owner, 1, block.bytes});
  }
  return kinds;
}

}  // namespace ropewalk::tools
