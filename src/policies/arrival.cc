#include "policies/arrival.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <string>
#include <vector>

namespace ropewalk {
namespace {

const char* name_of(Purpose purpose) {
  constexpr std::array kNames = {"synchronize_center", "synchronize_parameters", "center", "leave",
                                 "serve"};
  return kNames[static_cast<size_t>(purpose)];
}

bool serves(const Arrival& arrival) {
  return arrival.purpose == Purpose::serve;
}

bool agree(const Arrival& a, const Arrival& b) {
  if (a.servers != b.servers || a.alpha != b.alpha) return false;
  if (serves(a) || serves(b)) return true;
  return a.purpose == b.purpose && a.elements == b.elements;
}

std::string describe(const Arrival& arrival, size_t rank) {
  return fmt::format("rank {} called {} ({} elements, alpha {}, {} servers)", rank,
                     name_of(arrival.purpose), arrival.elements,
                     std::bit_cast<double>(arrival.alpha), arrival.servers);
}

}  // namespace

Arrival meet_all(Communicator& comm, const Arrival& own) {
  constexpr std::chrono::hours kLong(1);
  std::vector<Arrival> arrivals(static_cast<size_t>(comm.size()));
  Call call;
  call.collective = Collective::all_gather;
  call.in = &own;
  call.out = arrivals.data();
  call.count = sizeof(Arrival);
  call.type = DataType::uint8;
  Work work = comm.start(call);
  while (!work.wait_for(kLong)) {
  }

  size_t first = 0;
  while (first + 1 < arrivals.size() && serves(arrivals[first])) ++first;
  for (size_t rank = 0; rank < arrivals.size(); ++rank)
    if (!agree(arrivals[first], arrivals[rank]))
      throw Error(ErrorCode::mismatch, "AsyncEa",
                  fmt::format("{}, but {}", describe(arrivals[first], first),
                              describe(arrivals[rank], rank)),
                  "call the same on every rank, with equal tensors and options");
  return arrivals[first];
}

}  // namespace ropewalk
