#include "channel.h"

#include <algorithm>

#include "engine/wire.h"

namespace ropewalk::tools {
namespace {

Way way_of(const ProgramStep& step, const ChannelSetting& setting) {
  if (step.bytes <= kEagerBytesMax) return Way::eager;
  const bool mapped = setting.is_mapped(step.peer);
  const bool sends = step.action == Action::send;
  if (step.for_reduce || step.action == Action::receive_reduce) {
    if (!mapped) return Way::staged;
    const bool copies = sends && !setting.is_registered(step.source, step.bytes);
    return copies ? Way::read_from_copy : Way::read_in_place;
  }
  // Without mapping any memory can be registered for the call.
  const std::byte* place = sends ? step.source : step.target;
  return mapped && !setting.is_registered(place, step.bytes) ? Way::staged : Way::stored;
}

}  // namespace

std::string_view name_of(Way way) {
  constexpr std::string_view kNames[] = {"eager",          "read_in_pass",    "read_in_place",
                                         "read_from_copy", "written_in_pass", "through_window",
                                         "stored",         "staged"};
  return kNames[static_cast<size_t>(way)];
}

std::string_view describe(Way way, bool sending) {
  switch (way) {
    case Way::eager:
      return "behind the header, in a slot of the inbox";
    case Way::read_in_pass:
      return sending ? "nothing moves: the parts' owners read them where they lie"
                     : "read where they lie in the peers' memory, all in one pass";
    case Way::read_in_place:
      return sending ? "nothing moves: peers add them where they lie"
                     : "added where they lie in the peers' memory";
    case Way::read_from_copy:
      return "plain memory: copied to staging memory, where peers add them";
    case Way::written_in_pass:
      return sending ? "written in the same pass straight into the peers' buffers"
                     : "written into their final place by the parts' owners";
    case Way::through_window:
      return sending ? "plain memory: copied to a window in cache, where owners read them"
                     : "plain memory: copied from a window in cache, which owners write";
    case Way::stored:
      return "put straight into their final place";
    case Way::staged:
      return sending ? "put into the peers' staging memory"
                     : "put into staging memory, then added or copied";
  }
  return {};
}

std::vector<Way> ways_of(const Program& program, const ChannelSetting& setting) {
  std::vector<Way> ways(program.steps.size(), Way::stored);
  for (size_t i = 0; i < ways.size(); ++i)
    if (program.steps[i].peer >= 0) ways[i] = way_of(program.steps[i], setting);
  return ways;
}

namespace {

/// Adds one message to its kind.
void count(std::vector<Traffic>& kinds, const Traffic& message) {
  auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Traffic& t) {
    return t.sending == message.sending && t.mapped == message.mapped && t.way == message.way;
  });
  if (kind == kinds.end())
    kind = kinds.insert(kinds.end(), {message.sending, message.mapped, message.way});
  ++kind->messages;
  kind->bytes += message.bytes;
  kind->bytes_max = std::max(kind->bytes_max, message.bytes);
}

}  // namespace

std::vector<Traffic> traffic_of(const Program& program, const ChannelSetting& setting) {
  const std::vector<Way> ways = ways_of(program, setting);
  std::vector<Traffic> kinds;
  for (size_t i = 0; i < ways.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    if (step.peer >= 0)
      count(kinds,
            {step.action == Action::send, setting.is_mapped(step.peer), ways[i], 1, step.bytes});
  }
  return kinds;
}

std::vector<Traffic> traffic_of(const Passes& passes, const ChannelSetting& setting) {
  std::vector<Traffic> kinds;
  const auto guest_way = [&](const std::byte* at, size_t bytes, Way direct) {
    return setting.is_registered(at, bytes) ? direct : Way::through_window;
  };
  for (const PassPeer& host : passes.peers) {
    if (host.in != nullptr)
      count(kinds, {true, true, guest_way(host.in, host.bytes, Way::read_in_pass), 1, host.bytes});
    if (host.out != nullptr)
      count(kinds,
            {false, true, guest_way(host.out, host.bytes, Way::written_in_pass), 1, host.bytes});
  }
  for (const OwnedBlock& block : passes.owned) {
    for (size_t i = 0; i < block.sources.size(); ++i)
      count(kinds, {false, true, Way::read_in_pass, 1, block.bytes});
    for (size_t i = 0; i < block.targets.size(); ++i)
      count(kinds, {true, true, Way::written_in_pass, 1, block.bytes});
  }
  return kinds;
}

}  // namespace ropewalk::tools
