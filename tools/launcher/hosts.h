// Where ranks go: "--hosts a:2,b:2".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::tools {

/// `slots` consecutive ranks on one host.
struct HostSlots {
  std::string host;  // as ssh takes it: "node1", "user@node1", "[fe80::1]"
  int slots = 1;
  int spare_slots = 0;  // more, for ranks that are lost elsewhere

  bool operator==(const HostSlots&) const = default;
};

inline constexpr int kRanksMax = 65536;

/// "a:2,b,user@c:4" (1 slot where no number is given; an IPv6 address in brackets). Throws
/// Error(invalid_argument) that quotes the entry at fault.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// Of all together.
int64_t slots_of(const std::vector<HostSlots>& hosts);

/// Hosts for exactly `ranks` ranks: the last ones cut or dropped, or with `keeps_spares` what is
/// left of them kept as spare slots. `ranks` == 0: all slots. Throws Error(invalid_argument) where
/// there are too few slots.
std::vector<HostSlots> assign_ranks(std::vector<HostSlots> hosts, int ranks,
                                    bool keeps_spares = false);

/// True for "localhost" and for this machine's own name: started without ssh.
bool is_this_machine(std::string_view host);

/// `word` as one word of a POSIX or C shell's command line.
std::string shell_quote(std::string_view word);

}  // namespace ropewalk::tools
