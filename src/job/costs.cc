#include "job/costs.h"

#include <fmt/format.h>

#include <array>

namespace ropewalk {

std::string_view name_of(CostSource source) {
  constexpr std::array kNames = {"constant", "system", "described", "probe", "profile"};
  return kNames[static_cast<size_t>(source)];
}

Costs unmeasured_costs(const TransportChoice& transports) {
  const auto cost_of = [](const TransportProvider* provider, const TransportProvider* otherwise) {
    if (provider == nullptr) provider = otherwise;
    return provider == nullptr ? LinkCost() : provider->cost;
  };
  Costs costs{.model = {.intra = cost_of(transports.within, transports.between),
                        .inter = cost_of(transports.between, transports.within),
                        .reduce_s_per_byte = kReducePerByte}};
  if (transports.between_bytes_per_s > 0) {
    costs.model.inter.s_per_byte = 1 / transports.between_bytes_per_s;
    costs.inter = CostSource::system;
  }
  return costs;
}

std::string text_of(const LinkCost& cost) {
  if (cost.s_per_byte <= 0) return "nothing";
  return fmt::format("{:.3g} us, then {:.4g} MB/s; {:.2g} us a message", cost.latency_s * 1e6,
                     1e-6 / cost.s_per_byte, cost.overhead_s * 1e6);
}

}  // namespace ropewalk
