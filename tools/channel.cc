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
                                         "read_from_copy", "written_in_pass", "stored",
                                         "staged"};
  return kNames[static_cast<size_t>(way)];
}

std::string_view describe(Way way, bool sending) {
  switch (way) {
    case Way::eager:
      return "behind the header, in a slot of the inbox";
    case Way::read_in_pass:
      return "added where they lie in the peers' memory, all in one pass";
    case Way::read_in_place:
      return sending ? "nothing moves: peers add them where they lie"
                     : "added where they lie in the peers' memory";
    case Way::read_from_copy:
      return "plain memory: copied to staging memory, where peers add them";
    case Way::written_in_pass:
      return "written by the adding pass straight into the peers' buffers";
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
  for (const FusedGroup& group : program.fused) {
    for (const uint32_t step : group.receives) ways[step] = Way::read_in_pass;
    for (const uint32_t step : group.sends)
      if (ways[step] == Way::stored) ways[step] = Way::written_in_pass;
  }
  return ways;
}

std::vector<Traffic> traffic_of(const Program& program, const ChannelSetting& setting) {
  const std::vector<Way> ways = ways_of(program, setting);
  std::vector<Traffic> kinds;
  for (size_t i = 0; i < ways.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    if (step.peer < 0) continue;
    const bool sending = step.action == Action::send, mapped = setting.is_mapped(step.peer);
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Traffic& t) {
      return t.sending == sending && t.mapped == mapped && t.way == ways[i];
    });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {sending, mapped, ways[i]});
    ++kind->messages;
    kind->bytes += step.bytes;
    kind->bytes_max = std::max(kind->bytes_max, step.bytes);
  }
  return kinds;
}

}  // namespace ropewalk::tools
