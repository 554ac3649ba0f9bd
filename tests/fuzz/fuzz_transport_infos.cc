// Feeds the providers' parsers of what ranks tell of their transports, and of ROPEWALK_IB_HCA. A
// list of ports that is accepted must be written in a form that reads back alike.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fabric/port_info.h"
#include "fabric/select_ports.h"
#include "ropewalk/status.h"
#include "transport_choice/transport_choice.h"
#include "transports/tcp/networks.h"

using namespace ropewalk;

namespace {

/// All that the others do with what a rank tells, before there is a link.
void choose(const TransportProvider& provider, std::string_view text) {
  for (const std::string_view wish : {std::string_view("auto"), provider.name}) {
    PeerRecord record;
    record.transport_infos.emplace(provider.name, text);
    try {
      choose_transports(wish, "rdma", PeerTable({record, record}));
    } catch (const Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto filter = verbs::PortFilter::parse(text)) filter->allows("mlx5_0", 1);
  for (const TransportProvider* provider : transport_providers()) choose(*provider, text);
  try {
    const std::vector<std::string> infos = {std::string(text),
                                            "10.77.0.1/24@10000 10.78.0.1/24@10000"};
    tcp::shared_networks(infos);
    tcp::unused_networks(infos);
  } catch (const Error&) {
  }
  try {
    if (const auto why = verbs::parse_no_ports(text)) {
      if (verbs::no_ports_text(*why) != text) std::abort();
      return 0;
    }
    const auto ports = verbs::parse_port_list(text);
    if (verbs::parse_port_list(verbs::port_list_text(ports)) != ports) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
