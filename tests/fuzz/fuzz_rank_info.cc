// Feeds the parser of what ranks say of themselves, and of ROPEWALK_IB_HCA. What it accepts, it
// must write in a form that reads back alike.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fabric/port_filter.h"
#include "ropewalk/status.h"
#include "transport_choice/rank_info.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto filter = ropewalk::verbs::PortFilter::parse(text)) filter->allows("mlx5_0", 1);
  try {
    const auto info = ropewalk::RankInfo::parse(text);
    const auto again = ropewalk::RankInfo::parse(info.text());
    if (again.ports != info.ports || again.cpus != info.cpus || again.no_ports != info.no_ports ||
        again.mailbox != info.mailbox || again.transport != info.transport)
      std::abort();
  } catch (const ropewalk::Error&) {
  }
  return 0;
}
