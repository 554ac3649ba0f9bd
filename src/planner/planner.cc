#include "planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <tuple>

#include "engine/wire.h"
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
constexpr double kGuess = 1.5;  // beside calls so short that were measured: rather those than this
/// A partner beyond kPartnersFew. To connect takes some 100 us and 67 to 133 KB at either end,
/// which comes once in many calls; who waits looks at all of them in turn, over and over.
constexpr double kPartner_s = 3e-6;
constexpr int kRoundsAtOnce = 2;    // one each way
constexpr double kTurn_s = 5e-6;    // of a thread on a shared CPU, between two waits
constexpr double kCold_s = 0.5e-6;  // a message, where others have used the caches meanwhile
constexpr size_t kSliceAlign = 64;  // a cache line; whole elements of every type

size_t sent_slice_min(const LinkCost& link) {
  const double bytes = kSliceMin_s / std::max(link.s_per_byte, 1e-15);
  if (bytes >= static_cast<double>(kSentSliceMin)) return kSentSliceMin;
  return std::max(std::bit_floor(static_cast<size_t>(bytes)), kSlowSliceMin);
}

/// The most ranks of a host whose successor is on another one.
int leaving_max(const Hosts& hosts) {
  std::vector<int> leaving(hosts.count());
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    const int host = hosts.host_of[rank];
    if (host != hosts.host_of[(rank + 1) % hosts.ranks()]) ++leaving[host];
  }
  return std::ranges::max(leaving);
}

std::vector<int> grouping_of(const PlanRequest& request, Algorithm algorithm) {
  return grouping_for(algorithm, request.ranks, request.hosts, request.racks, request.rows);
}
Hosts groups_of(const PlanRequest& request, Algorithm algorithm) {
  return hosts_of(grouping_of(request, algorithm), request.ranks);
}

/// Of the kind that occurs; in a chain of all ranks the slowest sets the pace.
LinkCost slowest_link(const PlanRequest& request, bool several_hosts) {
  LinkCost link = several_hosts ? request.cost.inter : request.cost.intra;
  if (!request.racks.empty())
    link.s_per_byte = std::max(link.s_per_byte, request.cost.racks_s_per_byte);
  return link;
}

/// An algorithm for a collective of the request's job.
struct Option {
  Collective collective;
  Algorithm algorithm;
  Bound bound;
};

/// How long calls take, and in slices of which length.
class Predictor {
 public:
  explicit Predictor(const PlanRequest& request)
      : request_(request),
        hosts_(hosts_of(request.hosts, request.ranks)),
        racks_(groups_of(request, Algorithm::racks)),
        rows_(groups_of(request, Algorithm::grid)),
        several_(hosts_.count() > 1),
        link_(slowest_link(request, several_)),
        ring_cross_(std::max(1, leaving_max(hosts_))),
        crowding_(request.ranks > kPartnersFew ? std::max(request.ranks_per_cpu, 1.0) : 1),
        slowdown_(find_slowdown()) {
    assert(request.rows.empty() || request.rows.size() == static_cast<size_t>(request.ranks));
    assert(std::ranges::is_sorted(request.times, {}, &MeasuredTime::bytes));
  }

  /// By which the algorithm goes.
  const Hosts& groups_for(Algorithm algorithm) const {
    switch (descriptor_of(algorithm).grouped_by) {
      case GroupedBy::racks:
        return racks_;
      case GroupedBy::rows:
        return rows_;
      default:
        return hosts_;
    }
  }

  Option option(Collective collective, Algorithm algorithm) const {
    return {collective, algorithm,
            bound_of({collective, algorithm, request_.ranks, request_.root,
                      grouping_of(request_, algorithm)})};
  }

  int partners(const Option& option) const {
    return descriptor_of(option.algorithm)
        .partners(option.collective, groups_for(option.algorithm));
  }

  double seconds(const Option& option, size_t bytes) const {
    if (request_.times.empty()) return modelled_s(option, bytes);
    const MeasuredTime* longest = longest_of(option);
    if (longest == nullptr) {
      const MeasuredTime* similar = similar_time(option);
      return similar == nullptr ? guessed_s(option, bytes) : by_similar_s(option, *similar, bytes);
    }
    if (bytes <= longest->bytes) return measured_s(option, bytes);
    if (!request_.slow_ones_left_out) return lengthened_s(option, *longest, bytes);
    const size_t known = std::clamp(bytes, longest->bytes, longest_of(option.collective));
    const double least_s = longest->seconds * fastest_s(option.collective, known) /
                           fastest_s(option.collective, longest->bytes);
    return std::max(longest->seconds + growth_s(option, longest->bytes, known), least_s) +
           growth_s(option, known, bytes);
  }

  /// Of the request's call. What limiters of links had saved up when calls were measured does not
  /// last. Of longer calls than those the simulation knows what links take, and the shortest
  /// measured ones what is not in its model: how long ranks wait for CPUs.
  double call_s(const Option& option) const {
    const auto simulated =
        std::ranges::find(request_.simulated, option.algorithm, &SimulatedTime::algorithm);
    if (simulated == request_.simulated.end()) return seconds(option, request_.bytes);
    if (request_.bytes <= longest_of(option.collective))
      return std::max(simulated->busiest_s, seconds(option, request_.bytes));
    if (request_.times.empty()) return simulated->seconds;
    const size_t shortest = request_.times.front().bytes;
    const double waiting_s = seconds(option, shortest) - modelled_s(option, shortest);
    return simulated->seconds + std::max(waiting_s, 0.0);
  }

  double link_s(const Option& option, size_t bytes) const {
    if (hosts_.size_max() > 1) return 0;
    return option.bound.sent * static_cast<double>(bytes) * request_.cost.inter.s_per_byte;
  }

  size_t slice_bytes(const Option& option, size_t bytes) const {
    const size_t block =
        bytes /
        descriptor_of(option.algorithm).blocks(option.collective, groups_for(option.algorithm));
    const size_t wanted =
        request_.mapped ? mapped_slice_bytes() : sent_slice_bytes(option, bytes, block);
    // Staging slots are as long as a slice: no longer than what they hold.
    const size_t slice = std::min(wanted, (block / kSliceAlign + 1) * kSliceAlign);
    const size_t most = std::max<size_t>(request_.slice_bytes_max, 1);
    if (slice <= most) return slice;
    return most < kSliceAlign ? most : most / kSliceAlign * kSliceAlign;
  }

 private:
  static bool is_of(const MeasuredTime& time, const Option& option) {
    return time.collective == option.collective && time.algorithm == option.algorithm;
  }

  /// Many ranks of a host that take turns: what a CPU does for one it does for all of them, and a
  /// rank is answered when its peer has had its turn.
  void share_cpus(CostTerms& t) const {
    for (LinkCost* link : {&t.link, &t.inside, &t.near}) {
      link->latency_s += (crowding_ - 1) * kTurn_s;
      link->overhead_s = crowding_ * (link->overhead_s + (crowding_ > 1 ? kCold_s : 0));
      // Within a host a CPU moves bytes.
      if (!several_ || link == &t.inside) link->s_per_byte *= crowding_;
    }
    t.add *= crowding_;
  }

  /// Of one algorithm; null: it was not measured.
  const MeasuredTime* longest_of(const Option& option) const {
    const MeasuredTime* longest = nullptr;
    for (const MeasuredTime& time : request_.times)
      if (is_of(time, option)) longest = &time;
    return longest;
  }
  size_t longest_of(Collective collective) const {
    size_t longest = 0;
    for (const MeasuredTime& time : request_.times)
      if (time.collective == collective) longest = time.bytes;
    return longest;
  }

  /// Of an algorithm that was measured with `bytes` or more.
  double measured_s(const Option& option, size_t bytes) const {
    const MeasuredTime* below = nullptr;
    for (const MeasuredTime& time : request_.times) {
      if (!is_of(time, option)) continue;
      if (time.bytes < bytes) {
        below = &time;
        continue;
      }
      if (below == nullptr) return shortened_s(option, time, bytes);
      const double part = static_cast<double>(bytes - below->bytes) /
                          static_cast<double>(time.bytes - below->bytes);
      return below->seconds + part * (time.seconds - below->seconds);
    }
    assert(false);
    return 0;
  }
  /// Of all that were measured with `bytes` or more.
  double fastest_s(Collective collective, size_t bytes) const {
    double fastest = std::numeric_limits<double>::infinity();
    for (const MeasuredTime& time : request_.times) {
      if (time.collective == collective && time.bytes >= bytes)
        fastest = std::min(fastest, measured_s(option(collective, time.algorithm), bytes));
    }
    return fastest;
  }

  /// Of a collective that was not measured: the shortest call of the same algorithm that was, in
  /// the collective that sends the same messages the other way, else in an all_reduce, which does
  /// both. Null: there is none.
  const MeasuredTime* similar_time(const Option& option) const {
    using enum Collective;
    const Collective collective = option.collective;
    if (collective != reduce_scatter && collective != all_gather) return nullptr;
    if (longest_of(collective) > 0) return nullptr;
    for (const Collective like : {reduce_scatter, all_gather, all_reduce})
      for (const MeasuredTime& time : request_.times)
        if (is_of(time, {like, option.algorithm, {}})) return &time;
    return nullptr;
  }
  double by_similar_s(const Option& option, const MeasuredTime& like, size_t bytes) const {
    const double like_modelled_s =
        modelled_s(this->option(like.collective, like.algorithm), like.bytes);
    const double slowdown = like_modelled_s > 0 ? like.seconds / like_modelled_s : slowdown_;
    const MeasuredTime time{option.collective, option.algorithm, like.bytes,
                            slowdown * modelled_s(option, like.bytes)};
    if (bytes <= time.bytes) return shortened_s(option, time, bytes);
    return lengthened_s(option, time, bytes);
  }

  /// Of an algorithm that was not measured, beside others that were.
  double guessed_s(const Option& option, size_t bytes) const {
    assert(!request_.times.empty());
    const size_t shortest = request_.times.front().bytes;
    const double guess = bytes <= longest_of(option.collective) ? kGuess : 1;
    return guess * slowdown_ * modelled_s(option, shortest) + growth_s(option, shortest, bytes);
  }
  /// Of fewer bytes than were measured: the part of the time that they take, as modelled. Where
  /// others were measured with fewer, the model may have been wrong about the bytes: then it is a
  /// guess.
  double shortened_s(const Option& option, const MeasuredTime& time, size_t bytes) const {
    const double whole = modelled_s(option, time.bytes);
    const double part = whole > 0 ? std::min(modelled_s(option, bytes) / whole, 1.0) : 1;
    if (time.bytes == request_.times.front().bytes) return time.seconds * part;
    return std::min(time.seconds, std::max(time.seconds * part, guessed_s(option, bytes)));
  }
  /// Of more bytes than were measured. Where all messages go at once links hide what CPUs do for
  /// them, once they are busy for longer; not what the shortest calls take, which is waiting.
  double lengthened_s(const Option& option, const MeasuredTime& time, size_t bytes) const {
    const double added_s = time.seconds + growth_s(option, time.bytes, bytes);
    const bool is_shortest = time.bytes == request_.times.front().bytes;
    if (!several_ || option.bound.rounds > kRoundsAtOnce || is_shortest) return added_s;
    return std::min(added_s, std::max(time.seconds, modelled_s(option, bytes)));
  }
  /// What more bytes add, as modelled: what they take on the link at least.
  double growth_s(const Option& option, size_t from, size_t bytes) const {
    return std::max(modelled_s(option, bytes) - modelled_s(option, from),
                    link_s(option, bytes) - link_s(option, from));
  }

  /// As the cost model says, in slices of so many bytes.
  double modelled_s(const Option& option, size_t bytes, size_t slice_bytes) const {
    CostTerms t{};
    t.bound = option.bound;
    t.n = request_.ranks;
    t.bytes = static_cast<double>(bytes);
    t.slice = static_cast<double>(std::max<size_t>(slice_bytes, 1));
    t.link = link_;
    t.inside = request_.cost.intra;
    t.near = several_ ? request_.cost.inter : request_.cost.intra;
    t.rows = rows_.count();
    t.row_size = rows_.size_max();
    t.racks = racks_.count();
    t.rack_size = racks_.size_max();
    t.across_s_per_byte = request_.cost.racks_s_per_byte;
    t.add = request_.cost.reduce_s_per_byte;
    t.hosts = hosts_.count();
    t.owners = hosts_.size_min();
    t.local = hosts_.size_max();
    t.adapters = several_ ? std::max(request_.cost.adapters, 1.0) : 1;
    t.all_cross = several_ ? t.local : 1;
    t.ring_cross = ring_cross_;
    t.mapped = request_.mapped;
    t.described = request_.described;
    t.whole_max = static_cast<double>(eager_bytes_max(request_.mapped, request_.spreads));
    t.window = kWindowSlots;
    share_cpus(t);
    const double more = request_.described ? 0 : partners(option) - kPartnersFew;
    return descriptor_of(option.algorithm).predict_s(t, option.collective) +
           std::max(more, 0.0) * kPartner_s * crowding_;
  }
  double modelled_s(const Option& option, size_t bytes) const {
    return modelled_s(option, bytes, slice_bytes(option, bytes));
  }

  /// How many times as long as modelled the shortest measured calls took: the median, or of an even
  /// number the lesser one. Where ranks share CPUs, those with most messages took longest by far.
  double find_slowdown() const {
    std::vector<double> slowdowns;
    for (const MeasuredTime& time : request_.times) {
      if (time.bytes != request_.times.front().bytes) break;
      const double modelled = modelled_s(option(time.collective, time.algorithm), time.bytes);
      if (modelled > 0) slowdowns.push_back(time.seconds / modelled);
    }
    if (slowdowns.empty()) return 1;
    std::ranges::sort(slowdowns);
    return slowdowns[(slowdowns.size() - 1) / 2];
  }

  size_t mapped_slice_bytes() const {
    // One slice of every rank's buffer at once should fit in half of L2.
    const size_t most = std::max<size_t>(request_.l2_bytes / 2 / request_.ranks, 1);
    return std::clamp(std::bit_floor(most), kMappedSliceMin, kMappedSliceMax);
  }

  size_t sent_slice_bytes(const Option& option, size_t bytes, size_t block) const {
    const size_t least = sent_slice_min(link_);
    size_t slice = std::max(std::bit_floor(block / kSlicesWanted), least);
    // A rank of a chain or a tree hands on what it has whole: shorter ones, as far as that gains.
    while (slice / 2 >= least &&
           modelled_s(option, bytes, slice / 2) <= kWorthHalving * modelled_s(option, bytes, slice))
      slice /= 2;
    return slice;
  }

  const PlanRequest& request_;
  const Hosts hosts_, racks_, rows_;
  const bool several_;
  const LinkCost link_;
  const int ring_cross_;
  const double crowding_;
  const double slowdown_;
};

Candidate consider(const PlanRequest& request, const Predictor& predictor, Algorithm algorithm) {
  const Option option = predictor.option(request.collective, algorithm);
  Candidate candidate;
  candidate.algorithm = algorithm;
  if (request.ranks > 1) candidate.predicted_us = 1e6 * predictor.call_s(option);
  std::string why;
  if (request.forced == Algorithm::automatic)
    why = descriptor_of(algorithm).passed_over(predictor.groups_for(algorithm));
  else if (request.forced != algorithm)
    why = "another one is forced";
  const Bound& bound = option.bound;
  candidate.link_us = 1e6 * predictor.link_s(option, request.bytes);
  candidate.partners = predictor.partners(option);
  const double held = descriptor_of(algorithm).held * static_cast<double>(request.bytes);
  if (why.empty() && request.forced == Algorithm::automatic && held > kHeldBytesMax)
    why = fmt::format("a rank holds up to {:.0f} MiB of others' parts", held / (1 << 20));
  candidate.eligible = why.empty();
  candidate.reason = candidate.eligible
                         ? fmt::format("{} round{}, a rank sends up to {:.3g} of the vector",
                                       bound.rounds, bound.rounds == 1 ? "" : "s", bound.sent)
                         : "passed over: " + why;
  return candidate;
}

Candidate consider(const PlanRequest& request, const MadeSchedule& made) {
  const bool is_forced = request.forced == Algorithm::synthesized;
  std::string why = made.why_not;
  if (why.empty() && !is_forced && request.forced != Algorithm::automatic)
    why = "another one is forced";
  if (why.empty() && !is_forced && made.predicted_s * kSynthesisGainMin >= made.otherwise_s)
    why = made.otherwise_s > 0 ? fmt::format("gains less than {:.0f} %; {}",
                                             100 * (kSynthesisGainMin - 1), made.told)
                               : made.told;
  return {.algorithm = Algorithm::synthesized,
          .predicted_us = 1e6 * made.predicted_s,
          .partners = made.partners,
          .reason = why.empty() ? made.told : "passed over: " + why,
          .eligible = why.empty()};
}

/// Where others will do. Mapped memory takes no open file for each link.
void pass_over_many_partners(std::vector<Candidate>& candidates) {
  const auto has_few = [](const Candidate& candidate) {
    return candidate.eligible && candidate.partners <= kPartnersMax;
  };
  if (std::ranges::none_of(candidates, has_few)) return;
  for (Candidate& candidate : candidates) {
    if (!candidate.eligible || has_few(candidate)) continue;
    candidate.eligible = false;
    candidate.reason = fmt::format("passed over: takes links with {} ranks, more than {}",
                                   candidate.partners, kPartnersMax);
  }
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
  if (request.forced == Algorithm::synthesized && implements(request.forced, request.collective)) {
    if (!request.made)
      throw Error(ErrorCode::unavailable, operation, "nothing is known of the network",
                  "describe it to rank 0: ROPEWALK_NETWORK=FILE (docs/network.md)");
    if (!request.made->why_not.empty())
      throw Error(ErrorCode::unavailable, operation,
                  "no schedule is made for the network: " + request.made->why_not,
                  fmt::format("use auto or one of: {}", list_of(algorithms)));
  } else if (request.forced != Algorithm::automatic &&
             std::ranges::find(algorithms, request.forced) == algorithms.end())
    throw Error(ErrorCode::unavailable, operation,
                fmt::format("there is no algorithm '{}'", name_of(request.forced)),
                fmt::format("use auto or one of: {}", list_of(algorithms)));
}

}  // namespace

std::vector<int> grouping_for(Algorithm algorithm, int ranks, const std::vector<int>& hosts,
                              const std::vector<int>& racks, const std::vector<int>& rows) {
  const auto or_one = [ranks](const std::vector<int>& groups) {
    return groups.empty() ? std::vector<int>(static_cast<size_t>(ranks), 0) : groups;
  };
  switch (descriptor_of(algorithm).grouped_by) {
    case GroupedBy::racks:
      return or_one(racks);
    case GroupedBy::rows:
      return or_one(rows);
    default:
      return hosts;
  }
}

std::string passed_over(const PlanRequest& request, Algorithm algorithm) {
  return descriptor_of(algorithm).passed_over(groups_of(request, algorithm));
}

PlanDecision choose(const PlanRequest& request) {
  const std::vector<Algorithm>& algorithms = algorithms_for(request.collective);
  require_available(request, algorithms);
  const Predictor predictor(request);

  PlanDecision decision;
  for (Algorithm algorithm : algorithms)
    decision.candidates.push_back(consider(request, predictor, algorithm));
  if (request.forced == Algorithm::automatic && !request.mapped)
    pass_over_many_partners(decision.candidates);
  if (request.made && implements(Algorithm::synthesized, request.collective))
    decision.candidates.push_back(consider(request, *request.made));
  // What was made is compared by a model that knows more: closed forms do not count then.
  std::ranges::stable_sort(decision.candidates, {}, [](const Candidate& candidate) {
    return std::tuple(!candidate.eligible, candidate.algorithm != Algorithm::synthesized,
                      candidate.predicted_us);
  });
  decision.algorithm = decision.candidates.front().algorithm;
  decision.predicted_us = decision.candidates.front().predicted_us;
  decision.slice_bytes =
      decision.algorithm == Algorithm::synthesized
          ? std::min(request.made->slice_bytes, request.slice_bytes_max)
          : predictor.slice_bytes(predictor.option(request.collective, decision.algorithm),
                                  request.bytes);
  return decision;
}

}  // namespace ropewalk
