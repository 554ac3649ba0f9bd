#include "policies/ea_call.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <string>
#include <vector>

namespace ropewalk {
namespace {

const char* name_of(EaOperation operation) {
  constexpr std::array kNames = {"synchronize_center", "synchronize_parameters", "center", "leave",
                                 "serve"};
  return kNames[static_cast<size_t>(operation)];
}

bool serves(const EaCall& call) {
  return call.operation == EaOperation::serve;
}

bool agree(const EaCall& a, const EaCall& b) {
  if (a.servers != b.servers || a.alpha != b.alpha) return false;
  if (serves(a) || serves(b)) return true;
  return a.operation == b.operation && a.elements == b.elements;
}

std::string describe(const EaCall& call, size_t rank) {
  return fmt::format("rank {} called {} ({} elements, alpha {}, {} servers)", rank,
                     name_of(call.operation), call.elements, std::bit_cast<double>(call.alpha),
                     call.servers);
}

}  // namespace

EaCall meet_all(Communicator& comm, const EaCall& own) {
  constexpr std::chrono::hours kLong(1);
  std::vector<EaCall> calls(static_cast<size_t>(comm.size()));
  Call call;
  call.collective = Collective::all_gather;
  call.in = &own;
  call.out = calls.data();
  call.count = sizeof(EaCall);
  call.type = DataType::uint8;
  Work work = comm.start(call);
  while (!work.wait_for(kLong)) {
  }

  size_t first = 0;
  while (first + 1 < calls.size() && serves(calls[first])) ++first;
  for (size_t rank = 0; rank < calls.size(); ++rank)
    if (!agree(calls[first], calls[rank]))
      throw Error(
          ErrorCode::mismatch, "AsyncEa",
          fmt::format("{}, but {}", describe(calls[first], first), describe(calls[rank], rank)),
          "call the same on every rank, with equal tensors and options");
  return calls[first];
}

}  // namespace ropewalk
