// ROPEWALK_IB_HCA: which RDMA devices and ports may be used. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::verbs {

/// "mlx5" names every device that begins so, "mlx5_0:1" port 1 of such. A list has commas. In front
/// of the list "=" makes names exact, "^" excludes what the list names, "^=" both. Empty: all.
class PortFilter {
 public:
  /// Nothing for what is no such list.
  static std::optional<PortFilter> parse(std::string_view text);

  bool allows(std::string_view device, uint8_t port) const;
  /// Some port of the device may be allowed.
  bool allows_device(std::string_view device) const;
  bool allows_all() const { return entries_.empty(); }

 private:
  struct Entry {
    std::string device;
    uint8_t port = 0;  // 0: every
  };
  bool names(const Entry& entry, std::string_view device) const;

  std::vector<Entry> entries_;
  bool exact_ = false;
  bool excludes_ = false;
};

}  // namespace ropewalk::verbs
