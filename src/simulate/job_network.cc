#include "simulate/job_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <set>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "network/job_hosts.h"
#include "ropewalk/status.h"
#include "simulate/plan.h"

namespace ropewalk {
namespace {

/// Of calls: shorter ones are not worth making anything, and longer ones gain as much as these.
constexpr size_t kMadeBytesMin = 64 << 10, kComparedBytesMax = 16 << 20;
/// Shorter calls wait for CPUs and for latencies, which the simulator takes to be alike.
constexpr size_t kSimulatedBytesMin = 1 << 10;

/// About what a message's headers take on a network, which the simulator leaves out: the engine's,
/// TCP's, IP's and Ethernet's. Of short messages they are a good part.
constexpr double kHeaderBytes = 150;

/// For which the busiest link is busy.
double busiest_s_with_headers(const PlanRequest& request, const SimulatedAlgorithm& one) {
  if (one.call.links.empty()) return 0;
  const std::vector<int> groups =
      grouping_for(one.algorithm, request.ranks, request.hosts, request.racks, request.rows);
  const int blocks =
      descriptor_of(one.algorithm).blocks(request.collective, hosts_of(groups, request.ranks));
  const double message_bytes = static_cast<double>(request.bytes) / blocks;
  return one.call.links.front().busy_s * (1 + kHeaderBytes / message_bytes);
}

size_t compared_bytes(size_t bytes) {
  return std::min(std::bit_floor(bytes), kComparedBytesMax);
}

int partners_of(const std::vector<Schedule>& schedules) {
  size_t most = 0;
  for (const Schedule& schedule : schedules) {
    std::set<int> peers;
    for (const Step& step : schedule.steps) peers.insert(step.peer);
    most = std::max(most, peers.size());
  }
  return static_cast<int>(most);
}

std::string text_of(const Synthesized& made) {
  return fmt::format(
      "{} trees of depth {}, the busiest link {:.2f} times as busy as the bound says", made.trees,
      made.depth, made.busy_s_per_byte / made.least_s_per_byte);
}

MadeSchedule without(std::string why_not) {
  MadeSchedule none;
  none.why_not = std::move(why_not);
  return none;
}

}  // namespace

JobNetwork::JobNetwork(Network network, int rank, Keep keep)
    : network_(std::move(network)),
      rank_(rank),
      is_uniform_(is_uniform(network_)),
      synthesizes_by_default_(ropewalk::synthesizes_by_default(network_)),
      keeps_all_(keep == Keep::all_schedules || synthesizes_by_default_),
      routes_(network_) {}

std::shared_ptr<JobNetwork> JobNetwork::part(const std::vector<int>& ranks, int rank) const {
  auto network = network_of_part(network_, ranks);
  return network ? std::make_shared<JobNetwork>(std::move(*network), rank) : nullptr;
}

std::optional<MadeSchedule> JobNetwork::find(const PlanRequest& request) {
  const bool is_forced = request.forced == Algorithm::synthesized;
  if ((!is_forced && request.forced != Algorithm::automatic) ||
      !implements(Algorithm::synthesized, request.collective))
    return {};
  if (!is_forced) {
    if (!can_synthesize()) return without("this build is without Boost.Graph");
    if (is_uniform_) return without("all hosts are alike, at one switch");
    if (!synthesizes_by_default_)
      return without(fmt::format("of more than {} hosts or {} ranks it is made where it is forced",
                                 kUnaskedHostsMax, kUnaskedRanksMax));
    if (request.bytes < kMadeBytesMin)
      return without(fmt::format("less than {}", bytes_text(kMadeBytesMin)));
  }
  const std::lock_guard lock(making_mutex_);
  Packing& packing = find_or_pack(request.collective, request.root);
  if (!packing.why_not.empty()) return without(packing.why_not);
  Made& made = find_or_write(packing, request.bytes);
  const PlanRequest described =
      request_on(network_, request.collective, request.root, request.bytes);
  MadeSchedule known;
  known.slice_bytes = tree_slice_bytes(described, made.all);
  known.partners = made.partners;
  known.told = text_of(made.all);
  known.predicted_s = made.all.busy_s_per_byte * static_cast<double>(request.bytes);
  if (is_forced) return known;
  const size_t compared = compared_bytes(request.bytes);
  const double made_s = call_of(find_or_write(packing, compared), compared).seconds();
  known.predicted_s =
      made_s + made.all.busy_s_per_byte * static_cast<double>(request.bytes - compared);
  if (made_s == 0) return known;
  const auto& algorithms = algorithms_on(request.collective, request.root, compared);
  assert(!algorithms.empty());  // what was made is simulated beside them
  const SimulatedTime& best = algorithms.front();
  known.otherwise_s = known.predicted_s * best.seconds / made_s;
  known.told += fmt::format("; where it takes {}, simulated, {} takes {}", time_text(1e6 * made_s),
                            name_of(best.algorithm), time_text(1e6 * best.seconds));
  return known;
}

std::vector<SimulatedTime> JobNetwork::simulated(const PlanRequest& request) {
  if (is_uniform_ || !synthesizes_by_default_ || request.bytes < kSimulatedBytesMin ||
      request.forced != Algorithm::automatic)
    return {};
  const auto competes = [&](Algorithm one) { return passed_over(request, one).empty(); };
  if (std::ranges::count_if(algorithms_for(request.collective), competes) < 2) return {};
  const std::lock_guard lock(making_mutex_);
  const size_t compared = compared_bytes(request.bytes);
  std::vector<SimulatedTime> all = algorithms_on(request.collective, request.root, compared);
  const double longer = static_cast<double>(request.bytes) / static_cast<double>(compared);
  for (SimulatedTime& one : all)
    one = {one.algorithm, longer * one.seconds, longer * one.busiest_s};
  return all;
}

const Schedule& JobNetwork::schedule(Collective collective, int root, size_t bytes) {
  const std::lock_guard lock(finished_mutex_);
  const Finished& finished = finished_.at({collective, root_of(collective, root)});
  return *finished.own.at(chunks_of(*finished.packing, bytes));
}

SimulatedSynthesis JobNetwork::simulate(Collective collective, int root, size_t bytes) {
  assert(keeps_all_);
  const std::lock_guard lock(making_mutex_);
  Packing& packing = find_or_pack(collective, root);
  SimulatedSynthesis simulated{
      .made = {}, .made_s = 0, .slice_bytes = 0, .call = {}, .why_not = packing.why_not};
  if (!packing.why_not.empty()) return simulated;
  simulated.trees = packing.forest.spread.blocks;
  simulated.tree_messages = packing.forest.spread.messages;
  const Made& made = find_or_write(packing, bytes);
  simulated.made = made.all;
  simulated.made_s = packing.made_s + made.made_s;
  const PlanRequest request = request_on(network_, collective, root_of(collective, root), bytes);
  const auto known = made.calls.find(bytes);
  if (known == made.calls.end() || known->second.ps == 0) {
    simulate_made(routes_, request, simulated);
  } else {
    simulated.slice_bytes = tree_slice_bytes(request, made.all);
    simulated.call = known->second;
  }
  return simulated;
}

int JobNetwork::root_of(Collective collective, int root) {
  return traits_of(collective).is_rooted() ? root : 0;
}

int JobNetwork::chunks_of(const Packing& packing, size_t bytes) const {
  const ScheduleKey& key = packing.forest.key;
  return chunks_for(request_on(network_, key.collective, key.root, bytes), packing.forest);
}

JobNetwork::Packing& JobNetwork::find_or_pack(Collective collective, int root) {
  const std::pair key(collective, root_of(collective, root));
  const auto found = packings_.find(key);
  return found != packings_.end()
             ? found->second
             : packings_.emplace(key, pack(collective, key.second)).first->second;
}

JobNetwork::Packing JobNetwork::pack(Collective collective, int root) {
  Packing packing;
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  try {
    packing.forest = make_forest(routes_, collective, root);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted && error.code() != ErrorCode::unavailable) throw;
    packing.why_not = error.failure().reason;
    if (rank_ == 0)
      log(LogLevel::info, 0, "no schedule is made for {}: {}", name_of(collective),
          packing.why_not);
  }
  packing.made_s = 1e-9 * static_cast<double>(clock.now_ns() - begin_ns);
  return packing;
}

JobNetwork::Made& JobNetwork::find_or_write(Packing& packing, size_t bytes) {
  const int chunks = chunks_of(packing, bytes);
  const auto found = packing.chunks.find(chunks);
  if (found != packing.chunks.end()) return found->second;
  Made& made = packing.chunks.emplace(chunks, write(packing, chunks)).first->second;
  const ScheduleKey& key = packing.forest.key;
  const std::lock_guard lock(finished_mutex_);
  Finished& finished = finished_[{key.collective, key.root}];
  finished.packing = &packing;
  finished.own.emplace(chunks, &made.own);
  return made;
}

JobNetwork::Made JobNetwork::write(const Packing& packing, int chunks) const {
  Made made;
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  const ScheduleKey& key = packing.forest.key;
  made.all = write_schedules(
      packing.forest, chunks,
      chunks_ahead_for(request_on(network_, key.collective, key.root, 0), packing.forest));
  made.own = made.all.schedules[static_cast<size_t>(rank_)];
  made.partners = partners_of(made.all.schedules);
  if (!keeps_all_) made.all.schedules = {};
  made.made_s = 1e-9 * static_cast<double>(clock.now_ns() - begin_ns);
  if (rank_ == 0)
    log(LogLevel::info, 0,
        "made a schedule of {} for {} ranks in {}, of which its proof took {}: {}",
        name_of(made.all.key.collective), network_.ranks(),
        time_text(1e6 * (packing.made_s + made.made_s)), time_text(1e6 * made.all.proof_s),
        text_of(made.all));
  return made;
}

const SimulatedCall& JobNetwork::call_of(Made& made, size_t bytes) {
  if (const auto known = made.calls.find(bytes); known != made.calls.end()) return known->second;
  const ScheduleKey& key = made.all.key;
  const std::vector<SimulatedTime>& algorithms = algorithms_on(key.collective, key.root, bytes);
  SimulatedCall call;
  if (algorithms.empty()) return made.calls.emplace(bytes, call).first->second;
  try {
    call = simulate_call(routes_,
                         call_for(request_on(network_, key.collective, key.root, bytes), made.all));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted) throw;
  }
  if (rank_ == 0 && call.ps > 0)
    log(LogLevel::info, 0, "{} of {}, simulated: {} takes {}, {} {}", name_of(key.collective),
        bytes_text(bytes), name_of(Algorithm::synthesized), time_text(1e6 * call.seconds()),
        name_of(algorithms.front().algorithm), time_text(1e6 * algorithms.front().seconds));
  return made.calls.emplace(bytes, std::move(call)).first->second;
}

const std::vector<SimulatedTime>& JobNetwork::algorithms_on(Collective collective, int root,
                                                            size_t bytes) {
  root = root_of(collective, root);
  const std::tuple asked(collective, root, bytes);
  if (const auto known = algorithms_.find(asked); known != algorithms_.end()) return known->second;
  std::vector<SimulatedTime> times;
  const PlanRequest request = request_on(network_, collective, root, bytes);
  for (const SimulatedAlgorithm& one : simulate_algorithms(routes_, request))
    if (one.why_not.empty())
      times.push_back({one.algorithm, one.call.seconds(), busiest_s_with_headers(request, one)});
  return algorithms_.emplace(asked, std::move(times)).first->second;
}

}  // namespace ropewalk
