#include "tools/launcher/hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <utility>

#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

[[noreturn]] void refuse(std::string_view entry, std::string_view why) {
  throw Error(ErrorCode::invalid_argument, "--hosts", fmt::format("\"{}\": {}", entry, why),
              "write --hosts node1:2,node2:2");
}

// Also keeps a name from being taken for an option of ssh.
bool is_host_name(std::string_view name) {
  if (name.empty() || name.front() == '-' || name.size() > 255) return false;
  if (name.find("@-") != std::string_view::npos || name.back() == '@') return false;
  return name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             ".-_@:%") == std::string_view::npos;
}

HostSlots parse_entry(std::string_view entry) {
  std::string_view name = entry, slots;
  bool has_slots = false;
  if (const size_t bracket = entry.find('['); bracket != std::string_view::npos) {
    const size_t end = entry.find(']');
    if (bracket != 0 || end == std::string_view::npos) refuse(entry, "brackets do not match");
    name = entry.substr(1, end - 1);
    const std::string_view rest = entry.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') refuse(entry, "':' must follow ']'");
    has_slots = !rest.empty();
    if (has_slots) slots = rest.substr(1);
  } else if (const size_t colon = entry.find(':'); colon != std::string_view::npos) {
    name = entry.substr(0, colon);
    slots = entry.substr(colon + 1);
    has_slots = true;
    if (slots.find(':') != std::string_view::npos) {
      refuse(entry, "more than one ':'; put an IPv6 address in brackets");
    }
  }
  if (!is_host_name(name)) refuse(entry, "not a host name");
  HostSlots result{std::string(name), 1};
  if (has_slots) {
    const auto [end, error] =
        std::from_chars(slots.data(), slots.data() + slots.size(), result.slots);
    if (error != std::errc() || end != slots.data() + slots.size() || result.slots < 1 ||
        result.slots > kRanksMax) {
      refuse(entry, fmt::format("the number of ranks must be 1 to {}", kRanksMax));
    }
  }
  return result;
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  while (true) {
    const size_t comma = text.find(',');
    HostSlots entry = parse_entry(text.substr(0, comma));
    for (const HostSlots& other : hosts) {
      if (other.host == entry.host) refuse(entry.host, "named twice");
    }
    hosts.push_back(std::move(entry));
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

int64_t slots_of(const std::vector<HostSlots>& hosts) {
  int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

std::vector<HostSlots> assign_ranks(std::vector<HostSlots> hosts, int ranks, bool keeps_spares) {
  const int64_t slots = slots_of(hosts);
  if (ranks > slots || slots > kRanksMax) {
    throw Error(ErrorCode::invalid_argument, "--hosts",
                fmt::format("{} ranks asked for, but the hosts offer {}", ranks, slots),
                fmt::format("write more slots (host:slots), at most {} in all", kRanksMax));
  }
  if (ranks == 0) return hosts;
  std::vector<HostSlots> assigned;
  for (HostSlots& host : hosts) {
    if (ranks == 0 && !keeps_spares) break;
    const int offered = std::exchange(host.slots, std::min(host.slots, ranks));
    if (keeps_spares) host.spare_slots = offered - host.slots;
    ranks -= host.slots;
    assigned.push_back(std::move(host));
  }
  return assigned;
}

bool is_this_machine(std::string_view host) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return host == "localhost" || host == name;
}

std::string shell_quote(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace ropewalk::tools
