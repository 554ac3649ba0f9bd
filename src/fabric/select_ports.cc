#include "fabric/select_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.h"

namespace ropewalk::verbs {
namespace {

/// mlx5_2 before mlx5_10: shorter names first where the beginnings are equal except for digits.
bool name_before(const std::string& x, const std::string& y) {
  const auto stem = [](const std::string& name) {
    return name.substr(0, name.find_last_not_of("0123456789") + 1);
  };
  if (stem(x) == stem(y) && x.size() != y.size()) return x.size() < y.size();
  return x < y;
}

bool is_preferred(const PortCandidate& x, const PortCandidate& y) {
  if (x.local_share != y.local_share) return x.local_share > y.local_share;
  if (x.info.rate_gbps != y.info.rate_gbps) return x.info.rate_gbps > y.info.rate_gbps;
  if (x.info.device != y.info.device) return name_before(x.info.device, y.info.device);
  return x.info.number < y.info.number;
}

}  // namespace

std::optional<PortFilter> PortFilter::parse(std::string_view text) {
  PortFilter filter;
  if (text.empty()) return filter;
  filter.excludes_ = text.starts_with('^');
  if (filter.excludes_) text.remove_prefix(1);
  filter.exact_ = text.starts_with('=');
  if (filter.exact_) text.remove_prefix(1);
  for (const std::string_view item : split(text, ',')) {
    const size_t colon = item.find(':');
    Entry entry{std::string(item.substr(0, colon))};
    if (!is_device_name(entry.device)) return {};
    if (colon != item.npos) {
      const auto port = parse_number<uint8_t>(item.substr(colon + 1));
      if (!port || *port == 0) return {};
      entry.port = *port;
    }
    filter.entries_.push_back(std::move(entry));
  }
  return filter;
}

bool PortFilter::names(const Entry& entry, std::string_view device) const {
  return exact_ ? device == entry.device : device.starts_with(entry.device);
}

bool PortFilter::allows(std::string_view device, uint8_t port) const {
  const auto is_it = [&](const Entry& entry) {
    return names(entry, device) && (entry.port == 0 || entry.port == port);
  };
  return allows_all() || std::ranges::any_of(entries_, is_it) != excludes_;
}

bool PortFilter::allows_device(std::string_view device) const {
  // One port of a device that is excluded leaves the others.
  const auto is_it = [&](const Entry& entry) {
    return names(entry, device) && (entry.port == 0 || !excludes_);
  };
  return allows_all() || std::ranges::any_of(entries_, is_it) != excludes_;
}

std::vector<size_t> select_ports(const std::vector<PortCandidate>& candidates, bool named,
                                 std::vector<std::string>& why_not) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t x, size_t y) { return is_preferred(candidates[x], candidates[y]); });
  uint32_t fastest_gbps = 0;
  for (const PortCandidate& candidate : candidates)
    fastest_gbps = std::max(fastest_gbps, candidate.info.rate_gbps);

  std::vector<size_t> chosen;
  std::set<std::string> adapters;
  for (const size_t i : order) {
    const PortInfo& info = candidates[i].info;
    const auto leave_out = [&](const std::string& why) {
      why_not.push_back(
          fmt::format("{} port {} is left out: {}; to use it, name it in "
                      "ROPEWALK_IB_HCA",
                      info.device, info.number, why));
    };
    if (!named && info.rate_gbps < fastest_gbps / 2) {
      leave_out(fmt::format("{} Gb/s, another has {}", info.rate_gbps, fastest_gbps));
    } else if (!adapters.contains(info.device) && adapters.size() == kAdaptersMax) {
      leave_out(fmt::format("{} other adapters are as near or nearer", kAdaptersMax));
    } else if (chosen.size() == kPortsMax) {
      leave_out(fmt::format("{} other ports are in use", kPortsMax));
    } else {
      adapters.insert(info.device);
      chosen.push_back(i);
    }
  }
  return chosen;
}

}  // namespace ropewalk::verbs
