// Which of this host's RDMA ports a rank may use, and which it takes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/port_info.h"

namespace ropewalk::verbs {

/// ROPEWALK_IB_HCA: which RDMA devices and ports may be used.
///
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

/// A rank opens so many adapters at most: a remote key has room for the keys of two.
inline constexpr size_t kAdaptersMax = 2;

struct PortCandidate {
  PortInfo info;
  double local_share = 1;  // of the CPUs that the rank may use: how many the adapter is local to
};

/// Indices of those to use, in this order: the nearest first, then the fastest, then by name. Of
/// kAdaptersMax adapters and kPortsMax ports at most; none slower than half of the fastest, unless
/// `named`: the user has said which he wants. `why_not` gets a sentence for each of the others.
std::vector<size_t> select_ports(const std::vector<PortCandidate>& candidates, bool named,
                                 std::vector<std::string>& why_not);

}  // namespace ropewalk::verbs
