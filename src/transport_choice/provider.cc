#include "transport_choice/provider.h"

#include <fmt/format.h>

namespace ropewalk {

const std::vector<const TransportProvider*>& transport_providers() {
#define ROPEWALK_ADDRESS_PROVIDER(name, other_name) &name##_provider(),
  static const std::vector<const TransportProvider*> providers = {
      ROPEWALK_TRANSPORTS(ROPEWALK_ADDRESS_PROVIDER)};
#undef ROPEWALK_ADDRESS_PROVIDER
  return providers;
}

std::string_view name_of(const TransportProvider* provider) {
  return provider == nullptr ? "none" : provider->name;
}

std::string name_of(const PeerRecord& record) {
  return fmt::format("rank {} (host {})", record.rank, record.host_name);
}

std::vector<TransportOffer> find_transports(const Config& config, int rank, int size) {
  std::vector<TransportOffer> offers;
  const auto find = [&](const TransportProvider& provider) {
    offers.push_back(provider.find(config, rank, size));
    offers.back().provider = &provider;
    return offers.back().why_not.empty();
  };
  bool one_will_do = false;  // for all ranks
  for (const TransportProvider* provider : transport_providers()) {
    const bool asked = config.transport == provider->name;
    if (!asked && config.transport != "auto") continue;
    if (config.secure && !is_secure(*provider)) continue;
    if (one_will_do && provider->find_obstacle != nullptr) continue;
    const bool can = find(*provider);
    one_will_do = one_will_do || (can && !provider->maps);
    if (asked && can && provider->within_host != nullptr) find(*provider->within_host);
  }
  return offers;
}

std::string line_of(const Diagnosis& diagnosis) {
  const char* severity = diagnosis.severity == Severity::ok     ? "ok  "
                         : diagnosis.severity == Severity::warn ? "warn"
                                                                : "FAIL";
  return fmt::format("{} {}: {}{}", severity, diagnosis.name, diagnosis.text,
                     diagnosis.advice.empty() ? "" : "; advice: " + diagnosis.advice);
}

}  // namespace ropewalk
