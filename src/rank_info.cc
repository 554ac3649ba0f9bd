#include "rank_info.h"

#include <fmt/format.h>

#include <array>

#include "ropewalk/status.h"
#include "topology/cpu_share.h"

namespace ropewalk {
namespace {

[[noreturn]] void refuse(std::string_view text) {
  throw Error(ErrorCode::protocol, "communicator",
              fmt::format("\"{}\" is not what a rank says of itself", text),
              "run the same version of Ropewalk on every rank");
}

/// One line of at most kNoPortsBytesMax bytes.
std::string one_line(std::string text) {
  if (text.size() > kNoPortsBytesMax) text = text.substr(0, kNoPortsBytesMax - 3) + "...";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

}  // namespace

std::string RankInfo::text() const {
  const std::string rdma = !ports.empty()     ? verbs::port_list_text(ports)
                           : no_ports.empty() ? std::string()
                                              : "!" + one_line(no_ports);
  return fmt::format("{};{};{};{}", transport, cpu_list_text(cpus), mailbox, rdma);
}

RankInfo RankInfo::parse(std::string_view text) {
  std::array<std::string_view, 3> fields;
  std::string_view rest = text;
  for (std::string_view& field : fields) {
    const size_t end = rest.find(';');
    if (end == std::string_view::npos) refuse(text);
    field = rest.substr(0, end);
    rest.remove_prefix(end + 1);
  }
  RankInfo info{std::string(fields[0]), parse_cpu_list(fields[1]), std::string(fields[2])};
  if (!rest.starts_with('!')) {
    info.ports = verbs::parse_port_list(rest);
    return info;
  }
  rest.remove_prefix(1);
  if (rest.empty() || rest.size() > kNoPortsBytesMax) refuse(text);
  info.no_ports = one_line(std::string(rest));
  return info;
}

}  // namespace ropewalk
