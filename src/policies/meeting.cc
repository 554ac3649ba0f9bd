#include "policies/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace ropewalk {
namespace {

const char* name_of(EaOperation operation) {
  constexpr std::array kNames = {
      "synchronize_center", "synchronize_parameters", "center", "leave", "serve", "resume"};
  return kNames[static_cast<size_t>(operation)];
}

bool serves(const EaCall& call) {
  return call.operation == EaOperation::serve;
}

bool agree(const EaCall& a, const EaCall& b) {
  if (a.servers != b.servers || a.alpha != b.alpha) return false;
  const bool any_elements =
      a.elements == EaCall::kAnyElements || b.elements == EaCall::kAnyElements;
  if (!any_elements && a.elements != b.elements) return false;
  if (a.operation == b.operation) return true;
  // Servers learn from the workers what is to be done, but not that there is another communicator.
  return (serves(a) && b.operation != EaOperation::resume) ||
         (serves(b) && a.operation != EaOperation::resume);
}

std::string describe(const EaCall& call, size_t rank) {
  const std::string elements =
      call.elements == EaCall::kAnyElements ? "any" : fmt::format("{}", call.elements);
  return fmt::format("rank {} called {} ({} elements, alpha {}, {} servers)", rank,
                     name_of(call.operation), elements, std::bit_cast<double>(call.alpha),
                     call.servers);
}

std::vector<EaCall> gather_calls(Communicator& comm, const EaCall& own) {
  constexpr std::chrono::hours kLong(1);
  std::vector<EaCall> calls(static_cast<size_t>(comm.size()));
  Work work = comm.start(Call::all_gather(
      std::span(reinterpret_cast<const uint8_t*>(&own), sizeof(own)),
      std::span(reinterpret_cast<uint8_t*>(calls.data()), calls.size() * sizeof(own))));
  while (!work.wait_for(kLong)) {
  }
  return calls;
}

}  // namespace

Meeting meet_all(Communicator& comm, const EaCall& own) {
  const std::vector<EaCall> calls = gather_calls(comm, own);
  const auto worker =
      std::ranges::find_if(calls, [](const EaCall& call) { return call.is_server == 0; });
  if (worker == calls.end())
    throw Error(ErrorCode::invalid_argument, "AsyncEa", "nobody is left who works",
                "go on with more ranks, or use fewer servers");
  const auto first = static_cast<size_t>(worker - calls.begin());
  for (size_t rank = 0; rank < calls.size(); ++rank)
    if (!agree(calls[first], calls[rank]))
      throw Error(
          ErrorCode::mismatch, "AsyncEa",
          fmt::format("{}, but {}", describe(calls[first], first), describe(calls[rank], rank)),
          "call the same on every rank, with equal tensors and options");
  const auto later = [](const EaCall& a, const EaCall& b) {
    return a.center.generation < b.center.generation;
  };
  const auto servers =
      std::ranges::count_if(calls, [](const EaCall& call) { return call.is_server != 0; });
  const auto holder = std::ranges::find_if(
      calls, [](const EaCall& call) { return call.is_server == 0 && call.has_state != 0; });
  return {worker->operation, worker->elements, static_cast<int>(servers),
          std::ranges::max_element(calls, later)->center,
          holder == calls.end() ? -1 : static_cast<int>(holder - calls.begin())};
}

}  // namespace ropewalk
