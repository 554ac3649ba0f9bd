#include "fabric/port_filter.h"

#include <algorithm>
#include <charconv>

#include "fabric/port_info.h"

namespace ropewalk::verbs {

std::optional<PortFilter> PortFilter::parse(std::string_view text) {
  PortFilter filter;
  if (text.empty()) return filter;
  filter.excludes_ = text.starts_with('^');
  if (filter.excludes_) text.remove_prefix(1);
  filter.exact_ = text.starts_with('=');
  if (filter.exact_) text.remove_prefix(1);
  for (;;) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const size_t colon = item.find(':');
    Entry entry{std::string(item.substr(0, colon))};
    if (!is_device_name(entry.device)) return {};
    if (colon != std::string_view::npos) {
      const char* end = item.data() + item.size();
      const auto [stop, error] = std::from_chars(item.data() + colon + 1, end, entry.port);
      if (error != std::errc() || stop != end || entry.port == 0) return {};
    }
    filter.entries_.push_back(std::move(entry));
    if (comma == std::string_view::npos) return filter;
    text.remove_prefix(comma + 1);
  }
}

bool PortFilter::names(const Entry& entry, std::string_view device) const {
  return exact_ ? device == entry.device : device.starts_with(entry.device);
}

bool PortFilter::allows(std::string_view device, uint8_t port) const {
  if (allows_all()) return true;
  const bool named = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return names(entry, device) && (entry.port == 0 || entry.port == port);
  });
  return named != excludes_;
}

bool PortFilter::allows_device(std::string_view device) const {
  if (allows_all()) return true;
  if (!excludes_)
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) { return names(entry, device); });
  return std::none_of(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return entry.port == 0 && names(entry, device); });
}

}  // namespace ropewalk::verbs
