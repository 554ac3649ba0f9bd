#include "transport_choice/rank_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

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

/// Of versions and fabrics: "rc_mlx5/mlx5_0:1".
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kFabricBytesMax &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || std::string_view("._-/:@").find(c) != std::string::npos;
         });
}

/// "1.13.1 rc_mlx5/mlx5_0:1 dc_mlx5/mlx5_0:1"; empty without UCX.
std::string ucx_text(const RankInfo& info) {
  if (!is_name(info.ucx)) return {};
  std::string text = info.ucx;
  size_t told = 0;
  for (const std::string& fabric : info.fabrics)
    if (is_name(fabric) && told++ < kFabricsMax) text += " " + fabric;
  return text;
}

bool parse_ucx(std::string_view text, RankInfo& info) {
  for (size_t count = 0; !text.empty(); ++count) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view name = text.substr(0, end);
    if (!is_name(name) || count > kFabricsMax || end + 1 == text.size()) return false;
    text.remove_prefix(std::min(end + 1, text.size()));
    if (count == 0)
      info.ucx = name;
    else
      info.fabrics.emplace_back(name);
  }
  return true;
}

}  // namespace

std::string RankInfo::text() const {
  const std::string rdma = !ports.empty()     ? verbs::port_list_text(ports)
                           : no_ports.empty() ? std::string()
                                              : "!" + one_line(no_ports);
  return fmt::format("{};{};{};{};{}", transport, cpu_list_text(cpus), mailbox, ucx_text(*this),
                     rdma);
}

RankInfo RankInfo::parse(std::string_view text) {
  std::array<std::string_view, 4> fields;
  std::string_view rest = text;
  for (std::string_view& field : fields) {
    const size_t end = rest.find(';');
    if (end == std::string_view::npos) refuse(text);
    field = rest.substr(0, end);
    rest.remove_prefix(end + 1);
  }
  RankInfo info{std::string(fields[0]), parse_cpu_list(fields[1]), std::string(fields[2])};
  if (!parse_ucx(fields[3], info)) refuse(text);
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
