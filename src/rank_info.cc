#include "rank_info.h"

#include <fmt/format.h>

#include "ropewalk/status.h"
#include "topology/cpu_share.h"

namespace ropewalk {

std::string RankInfo::text() const {
  return fmt::format("{};{};{}", transport, cpu_list_text(cpus), mailbox);
}

RankInfo RankInfo::parse(std::string_view text) {
  const size_t first = text.find(';');
  const size_t second = first == std::string_view::npos ? first : text.find(';', first + 1);
  if (second == std::string_view::npos)
    throw Error(ErrorCode::protocol, "communicator",
                fmt::format("\"{}\" is not what a rank says of itself", text),
                "run the same version of Ropewalk on every rank");
  return {std::string(text.substr(0, first)),
          parse_cpu_list(text.substr(first + 1, second - first - 1)),
          std::string(text.substr(second + 1))};
}

}  // namespace ropewalk
