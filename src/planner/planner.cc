#include "planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ropewalk/status.h"
#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

/// Shorter slices cost more than pipelining gains: one that is sent, unless the link is so slow
/// that it takes long all the same, and one that is read where it lies.
constexpr size_t kSentSliceMin = 512 << 10, kMappedSliceMin = 16 << 10, kSlowSliceMin = 16 << 10;
constexpr double kSliceMin_s = 200e-6;
constexpr size_t kMappedSliceMax = 64 << 10;  // staging windows stay in cache
constexpr size_t kSlicesWanted = 4;           // per block: enough to hide adding behind moving
constexpr double kWorthHalving = 0.98;
constexpr size_t kSliceAlign = 64;  // a cache line; whole elements of every type

size_t sent_slice_min(const LinkCost& link) {
  const double bytes = kSliceMin_s / std::max(link.s_per_byte, 1e-15);
  if (bytes >= static_cast<double>(kSentSliceMin)) return kSentSliceMin;
  return std::max(std::bit_floor(static_cast<size_t>(bytes)), kSlowSliceMin);
}

/// A call of the request's job.
struct Question {
  Collective collective;
  Algorithm algorithm;
  size_t bytes;
};

/// The most ranks of a host whose successor is on another one.
int leaving_max(const Hosts& hosts) {
  std::vector<int> leaving(hosts.count());
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    const int host = hosts.host_of[rank];
    if (host != hosts.host_of[(rank + 1) % hosts.ranks()]) ++leaving[host];
  }
  return std::ranges::max(leaving);
}

CostTerms terms_of(const PlanRequest& request, const Hosts& hosts, const Bound& bound, size_t bytes,
                   size_t slice_bytes) {
  const bool several = hosts.count() > 1;
  CostTerms t{};
  t.bound = bound;
  t.n = request.ranks;
  t.bytes = static_cast<double>(bytes);
  t.slice = static_cast<double>(std::max<size_t>(slice_bytes, 1));
  t.link = several ? request.cost.inter : request.cost.intra;
  t.inside = request.cost.intra;
  t.add = request.cost.reduce_s_per_byte;
  t.hosts = hosts.count();
  t.owners = hosts.size_min();
  t.local = hosts.size_max();
  t.all_cross = several ? t.local : 1;
  t.ring_cross = std::max(1, leaving_max(hosts));
  t.mapped = request.mapped;
  return t;
}

ScheduleKey key_of(const PlanRequest& request, const Question& call) {
  return {call.collective, call.algorithm, request.ranks, request.root, request.hosts};
}

/// As the cost model says, in slices of so many bytes.
double modelled_s(const PlanRequest& request, const Hosts& hosts, const Question& call,
                  size_t slice_bytes) {
  const CostTerms terms =
      terms_of(request, hosts, bound_of(key_of(request, call)), call.bytes, slice_bytes);
  return descriptor_of(call.algorithm).predict_s(terms, call.collective);
}

size_t mapped_slice_bytes(const PlanRequest& request) {
  // One slice of every rank's buffer at once should fit in half of L2.
  const size_t slice = std::bit_floor(std::max<size_t>(request.l2_bytes / 2 / request.ranks, 1));
  return std::clamp(slice, kMappedSliceMin, kMappedSliceMax);
}

size_t sent_slice_bytes(const PlanRequest& request, const Hosts& hosts, const Question& call) {
  const size_t block = call.bytes / descriptor_of(call.algorithm).blocks(call.collective, hosts);
  const size_t least = sent_slice_min(hosts.count() > 1 ? request.cost.inter : request.cost.intra);
  size_t slice = std::max(std::bit_floor(block / kSlicesWanted), least);
  // A rank of a chain or a tree hands on what it has whole: shorter ones, as far as that gains.
  for (; slice / 2 >= least; slice /= 2)
    if (modelled_s(request, hosts, call, slice / 2) >
        kWorthHalving * modelled_s(request, hosts, call, slice))
      break;
  // Staging slots are as long as a slice: no longer than what they hold.
  return std::min(slice, (block / kSliceAlign + 1) * kSliceAlign);
}

size_t choose_slice_bytes(const PlanRequest& request, const Hosts& hosts, const Question& call) {
  const size_t slice =
      request.mapped ? mapped_slice_bytes(request) : sent_slice_bytes(request, hosts, call);
  const size_t most = std::max<size_t>(request.slice_bytes_max, 1);
  if (slice <= most) return slice;
  return most < kSliceAlign ? most : most / kSliceAlign * kSliceAlign;
}

double modelled_s(const PlanRequest& request, const Hosts& hosts, const Question& call) {
  return modelled_s(request, hosts, call, choose_slice_bytes(request, hosts, call));
}

/// How many times as long as modelled the shortest measured calls took, all together.
double slowdown(const PlanRequest& request, const Hosts& hosts) {
  double measured = 0, modelled = 0;
  for (const MeasuredTime& time : request.times) {
    if (time.bytes != request.times.front().bytes) break;
    measured += time.seconds;
    modelled += modelled_s(request, hosts, {time.collective, time.algorithm, time.bytes});
  }
  return modelled > 0 ? measured / modelled : 1;
}

double predicted_s(const PlanRequest& request, const Hosts& hosts, const Question& call) {
  const MeasuredTime* below = nullptr;
  for (const MeasuredTime& time : request.times) {
    if (time.collective != call.collective || time.algorithm != call.algorithm) continue;
    if (time.bytes < call.bytes) {
      below = &time;
      continue;
    }
    if (below == nullptr) return time.seconds;
    const double part = static_cast<double>(call.bytes - below->bytes) /
                        static_cast<double>(time.bytes - below->bytes);
    return below->seconds + part * (time.seconds - below->seconds);
  }
  const double modelled = modelled_s(request, hosts, call);
  if (request.times.empty()) return modelled;
  const size_t bytes = below != nullptr ? below->bytes : request.times.front().bytes;
  const double known = modelled_s(request, hosts, {call.collective, call.algorithm, bytes});
  const double took = below != nullptr ? below->seconds : slowdown(request, hosts) * known;
  return took + std::max(modelled - known, 0.0);
}

Candidate consider(const PlanRequest& request, const Hosts& hosts, Algorithm algorithm) {
  const AlgorithmDescriptor& descriptor = descriptor_of(algorithm);
  const Question call{request.collective, algorithm, request.bytes};
  const Bound bound = bound_of(key_of(request, call));
  Candidate candidate;
  candidate.algorithm = algorithm;
  if (request.ranks > 1) candidate.predicted_us = 1e6 * predicted_s(request, hosts, call);
  std::string why;
  if (request.forced == Algorithm::automatic)
    why = descriptor.passed_over(hosts);
  else if (request.forced != algorithm)
    why = "another one is forced";
  candidate.eligible = why.empty();
  candidate.reason = candidate.eligible
                         ? fmt::format("{} round{}, a rank sends up to {:.3g} of the vector",
                                       bound.rounds, bound.rounds == 1 ? "" : "s", bound.sent)
                         : "passed over: " + why;
  return candidate;
}

std::string list_of(const std::vector<Algorithm>& algorithms) {
  std::string names;
  for (Algorithm algorithm : algorithms)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(algorithm));
  return names;
}

void require_available(const PlanRequest& request, const std::vector<Algorithm>& algorithms) {
  const std::string operation = fmt::format("choose for {}", name_of(request.collective));
  if (request.ranks < 1 ||
      (!request.hosts.empty() && request.hosts.size() != static_cast<size_t>(request.ranks)))
    throw Error(ErrorCode::invalid_argument, operation,
                fmt::format("{} ranks, {} host numbers", request.ranks, request.hosts.size()));
  if (algorithms.empty())
    throw Error(ErrorCode::unavailable, operation, "this is not run by an algorithm");
  if (request.forced != Algorithm::automatic &&
      std::ranges::find(algorithms, request.forced) == algorithms.end())
    throw Error(ErrorCode::unavailable, operation,
                fmt::format("there is no algorithm '{}'", name_of(request.forced)),
                fmt::format("use auto or one of: {}", list_of(algorithms)));
}

}  // namespace

PlanDecision choose(const PlanRequest& request) {
  const std::vector<Algorithm>& algorithms = algorithms_for(request.collective);
  require_available(request, algorithms);
  const Hosts hosts = hosts_of(request.hosts, request.ranks);

  PlanDecision decision;
  for (Algorithm algorithm : algorithms)
    decision.candidates.push_back(consider(request, hosts, algorithm));
  std::ranges::stable_sort(decision.candidates, {}, [](const Candidate& candidate) {
    return std::pair(!candidate.eligible, candidate.predicted_us);
  });
  decision.algorithm = decision.candidates.front().algorithm;
  decision.predicted_us = decision.candidates.front().predicted_us;
  decision.slice_bytes =
      choose_slice_bytes(request, hosts, {request.collective, decision.algorithm, request.bytes});
  return decision;
}

}  // namespace ropewalk
