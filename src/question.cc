#include "question.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/layout.h"
#include "engine/wire.h"

namespace ropewalk {
namespace {

/// What ROPEWALK_ALGORITHM forces; automatic where the named one does not implement `collective`.
Algorithm forced_by(const Knobs& knobs, Collective collective) {
  const auto wanted = algorithm_named(knobs.algorithm);
  if (!wanted)
    throw Error(ErrorCode::unavailable, "communicator",
                fmt::format("ROPEWALK_ALGORITHM={}: no such algorithm", knobs.algorithm),
                "`ropewalk env` lists them");
  const auto& possible = algorithms_for(collective);
  const bool applies = std::find(possible.begin(), possible.end(), *wanted) != possible.end();
  return applies ? *wanted : Algorithm::automatic;
}

/// `otherwise` where no two ranks are joined so: it then counts for nothing.
LinkCost cost_of(Means means, LinkCost otherwise) {
  switch (means) {
    case Means::none:
      return otherwise;
    case Means::shm:
    case Means::ucx_shm:
      return kSharedMemoryLink;
    case Means::tcp:
      return kTcpLink;
    case Means::verbs:
      return kVerbsLink;
    case Means::ucx:
      return kUcxLink;
  }
  return otherwise;
}

}  // namespace

bool all_mapped(const TransportChoice& transports, const std::vector<int>& hosts) {
  const bool one_host =
      std::all_of(hosts.begin(), hosts.end(), [&hosts](int host) { return host == hosts.front(); });
  return one_host && hosts.size() > 1 && transports.maps();
}

size_t slice_bytes_max(const Knobs& knobs) {
  return std::max(knobs.slice_bytes / 64 * 64, kEagerBytesMax);
}

Question question_for(const Call& call, const Knobs& knobs, const TransportChoice& transports,
                      const std::vector<int>& hosts) {
  Question question;
  question.collective = call.collective;
  question.ranks = static_cast<int>(hosts.size());
  // The ranks of an all_to_all_v know different totals, but must choose alike.
  const bool uneven = call.collective == Collective::all_to_all && !call.counts.empty();
  question.bytes = uneven ? slice_bytes_max(knobs) : total_bytes(call, question.ranks);
  question.hosts = hosts;
  question.root = call.root;
  question.forced = call.algorithm;
  if (call.algorithm == Algorithm::automatic) question.forced = forced_by(knobs, call.collective);
  question.mapped = all_mapped(transports, hosts);
  question.cost.intra = cost_of(transports.within, kSharedMemoryLink);
  question.cost.inter = cost_of(transports.between, kTcpLink);
  question.slice_bytes_max = slice_bytes_max(knobs);
  return question;
}

Choice choose_for(const Call& call, const Knobs& knobs, const TransportChoice& transports,
                  const std::vector<int>& hosts) {
  if (hosts.size() == 1)
    return {algorithms_for(call.collective).front(), slice_bytes_max(knobs), 0, {}};
  Choice choice = choose(question_for(call, knobs, transports, hosts));
  choice.slice_bytes = std::max(choice.slice_bytes / 64 * 64, kEagerBytesMax);
  return choice;
}

}  // namespace ropewalk
