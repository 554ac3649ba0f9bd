#include "simulate/steps.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <map>
#include <tuple>

#include "ropewalk/status.h"
#include "simulate/picoseconds.h"

namespace ropewalk {
namespace {

/// Builds a schedule for each rank takes a look at all of them where groups matter.
constexpr int kGroupedRanksMax = 8192;

[[noreturn]] void refuse_steps(const ScheduleKey& key) {
  throw Error(ErrorCode::exhausted, "simulate",
              fmt::format("{} ranks of {} have too many steps", key.ranks,
                          ropewalk::name_of(key.algorithm)),
              "simulate fewer ranks, larger slices, or a network in which more ranks are alike");
}

/// What steps on the blocks of one rank wait for, as in engine/program.cc, of a call in place.
class BlockDeps {
 public:
  BlockDeps(size_t blocks, SimulatedSteps& out) : blocks_(blocks), out_(out) {}

  void add(const Step& step, uint32_t index) {
    State& block = blocks_[static_cast<size_t>(step.block)];
    out_.deps_first.push_back(static_cast<uint32_t>(out_.deps.size()));
    if (is_send(step.op)) {
      depend_on(block.last_writer);
      out_.grant_deps_end.push_back(static_cast<uint32_t>(out_.deps.size()));
      block.readers.push_back({index, step.peer});
      return;
    }
    depend_on(block.last_writer);
    for (const Reader& reader : block.readers)
      if (reader.peer != step.peer) depend_on(reader.step);
    out_.grant_deps_end.push_back(static_cast<uint32_t>(out_.deps.size()));
    for (const Reader& reader : block.readers)
      if (reader.peer == step.peer) depend_on(reader.step);
    if (step.op == StepOp::reduce) {
      State& from = blocks_[static_cast<size_t>(step.from)];
      depend_on(from.last_writer);
      from.last_writer = index;  // the next write of it waits for this read
      from.readers.clear();
    }
    block.last_writer = index;
    block.readers.clear();
  }

 private:
  static constexpr uint32_t kNothing = UINT32_MAX;
  struct Reader {
    uint32_t step;
    int32_t peer;
  };
  struct State {
    uint32_t last_writer = kNothing;
    std::vector<Reader> readers;
  };
  void depend_on(uint32_t step) {
    if (step != kNothing) out_.deps.push_back(step);
  }
  std::vector<State> blocks_;
  SimulatedSteps& out_;
};

class StepsBuilder {
 public:
  StepsBuilder(Routes& routes, const CallToSimulate& call, bool in_list_order, uint64_t steps_max)
      : routes_(routes), call_(call), in_list_order_(in_list_order), steps_max_(steps_max) {}

  SimulatedSteps run() {
    find_alike();
    const uint32_t ranks =
        static_cast<uint32_t>(call_.event_by_event ? alike_.ranks : alike_.period);
    out_.ranks_each = static_cast<uint64_t>(alike_.ranks) / ranks;
    check_size(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) add_rank(rank);
    out_.step_first.push_back(static_cast<uint32_t>(out_.steps.size()));
    out_.deps_first.push_back(static_cast<uint32_t>(out_.deps.size()));
    first_ = {};
    lay_out_streams();
    match();
    fill_after();
    return std::move(out_);
  }

 private:
  using StreamKey = std::tuple<int32_t, uint8_t, bool>;

  void find_alike() {
    const ScheduleKey& key = call_.key;
    if (call_.schedules != nullptr) {
      symmetry_.unit = key.ranks;
      alike_ = no_likeness(routes_.network());
      return;
    }
    const AlgorithmDescriptor& descriptor = descriptor_of(key.algorithm);
    symmetry_ = descriptor.symmetry(key.collective, hosts_of(key.hosts, key.ranks));
    if (symmetry_.kind == Symmetry::Kind::none) symmetry_.unit = key.ranks;
    const bool is_grouped = descriptor.grouped_by != GroupedBy::nothing;
    if (is_grouped && symmetry_.unit > kGroupedRanksMax) refuse_steps(key);
    uint64_t steps = 0;
    const int built = symmetry_.kind == Symmetry::Kind::none ? 1 : symmetry_.unit;
    for (int rank = 0; rank < built; ++rank) {
      first_.push_back(build_schedule(key, rank));
      steps += first_.back().steps.size();
      if (steps > steps_max_) refuse_steps(key);
    }
    alike_ = find_likeness(routes_, key, symmetry_, first_, call_.messages_max);
  }

  void check_size(uint32_t ranks) {
    // Without symmetry the first rank says nothing of the others: add_rank counts.
    if (symmetry_.kind == Symmetry::Kind::none) return;
    const uint64_t each = first_[0].steps.size();
    if (each * ranks > steps_max_) refuse_steps(call_.key);
  }

  void add_rank(uint32_t rank) {
    const auto number = static_cast<int>(rank);
    const bool is_own = call_.event_by_event || symmetry_.kind == Symmetry::Kind::none;
    const int base = is_own ? number : number % symmetry_.unit;
    Schedule built;
    if (is_own && call_.schedules == nullptr) built = build_schedule(call_.key, number);
    const Schedule& given =
        call_.schedules != nullptr ? (*call_.schedules)[static_cast<size_t>(number)] : built;
    const Schedule& schedule = is_own ? given : first_[static_cast<size_t>(base)];
    const int by = number - base;
    out_.step_first.push_back(static_cast<uint32_t>(out_.steps.size()));
    out_.class_of.push_back(static_cast<uint32_t>(alike_.first_like(number)));
    if (out_.steps.size() + schedule.steps.size() > steps_max_) refuse_steps(call_.key);
    BlockDeps deps(static_cast<size_t>(schedule.blocks + schedule.scratch), out_);
    auto& keys = stream_of_.emplace_back();
    for (Step step : schedule.steps) {
      if (step.peer >= 0 && by != 0)
        step.peer = symmetry_.kind == Symmetry::Kind::exclusive_or
                        ? step.peer ^ by
                        : (step.peer + by) % call_.key.ranks;
      const auto index = static_cast<uint32_t>(out_.steps.size());
      SimulatedStep& added = out_.steps.emplace_back(SimulatedStep{step.op, step.block});
      out_.rank_of.push_back(rank);
      if (step.peer >= 0) {
        const StreamKey key(step.peer, step.lane, is_send(step.op));
        const auto [found, is_new] =
            keys.try_emplace(key, static_cast<uint32_t>(out_.streams.size()));
        if (is_new) out_.streams.push_back({rank, step.peer, step.lane, is_send(step.op)});
        added.stream = found->second;
        ++out_.streams[found->second].count;
      }
      if (in_list_order_)
        follow(index);
      else
        deps.add(step, index);
    }
  }

  /// Waits for the step before.
  void follow(uint32_t index) {
    out_.deps_first.push_back(static_cast<uint32_t>(out_.deps.size()));
    if (index != out_.step_first.back()) out_.deps.push_back(index - 1);
    out_.grant_deps_end.push_back(static_cast<uint32_t>(out_.deps.size()));
  }

  void lay_out_streams() {
    uint32_t first = 0;
    const Network& network = routes_.network();
    std::vector<LinkWay> path;
    for (SimulatedStream& stream : out_.streams) {
      stream.first = first;
      first += stream.count;
      stream.count = 0;
      const int rank = static_cast<int>(stream.rank);
      const int from = stream.sending ? rank : stream.peer,
                to = stream.sending ? stream.peer : rank;
      routes_.find(from, to, path);
      stream.inside = path.empty();
      stream.latency_ps =
          picoseconds(stream.inside ? network.within.latency_s : network.between.latency_s);
      for (const LinkWay way : path)
        stream.latency_ps += picoseconds(network.links[static_cast<size_t>(way / 2)].latency_s);
      if (!stream.sending) continue;
      stream.path_first = static_cast<uint32_t>(out_.paths.size());
      stream.path_count = static_cast<uint32_t>(path.size());
      for (const LinkWay way : path)
        out_.paths.push_back(call_.event_by_event ? way
                                                  : alike_.link_class[static_cast<size_t>(way)]);
    }
    out_.in_streams.resize(first);
    for (uint32_t i = 0; i < out_.steps.size(); ++i) {
      if (out_.steps[i].op == StepOp::reduce) continue;
      SimulatedStream& stream = out_.streams[out_.steps[i].stream];
      out_.in_streams[stream.first + stream.count++] = i;
    }
  }

  /// The i-th send of a stream belongs to the i-th receive at its other end, or there of the rank
  /// that is like that one.
  void match() {
    for (uint32_t number = 0; number < out_.streams.size(); ++number) {
      SimulatedStream& stream = out_.streams[number];
      int at = stream.peer, peer = static_cast<int>(stream.rank);
      if (!call_.event_by_event) {
        at = alike_.first_like(stream.peer);
        peer = alike_.renamed(stream.peer, static_cast<int>(stream.rank));
      }
      const auto& keys = stream_of_[static_cast<size_t>(at)];
      const auto found = keys.find(StreamKey(peer, stream.lane, !stream.sending));
      assert(found != keys.end());
      stream.partner = found->second;
      const SimulatedStream& other = out_.streams[found->second];
      assert(other.count == stream.count);
      for (uint32_t i = 0; i < stream.count; ++i)
        out_.steps[out_.in_streams[stream.first + i]].partner = out_.in_streams[other.first + i];
    }
    stream_of_.clear();
  }

  void fill_after() {
    out_.after_first.assign(out_.steps.size() + 1, 0);
    for (const uint32_t before : out_.deps) ++out_.after_first[before + 1];
    for (size_t i = 1; i < out_.after_first.size(); ++i)
      out_.after_first[i] += out_.after_first[i - 1];
    out_.after.resize(out_.deps.size());
    std::vector<uint32_t> fill(out_.after_first.begin(), out_.after_first.end() - 1);
    for (uint32_t step = 0; step < out_.steps.size(); ++step)
      for (uint32_t d = out_.deps_first[step]; d < out_.deps_first[step + 1]; ++d)
        out_.after[fill[out_.deps[d]]++] = step;
  }

  Routes& routes_;
  const CallToSimulate& call_;
  const bool in_list_order_;
  const uint64_t steps_max_;
  Symmetry symmetry_;
  Likeness alike_;
  std::vector<Schedule> first_;
  std::vector<std::map<StreamKey, uint32_t>> stream_of_;  // by rank that is run
  SimulatedSteps out_;
};

}  // namespace

SimulatedSteps steps_of(Routes& routes, const CallToSimulate& call, bool in_list_order,
                        uint64_t steps_max) {
  return StepsBuilder(routes, call, in_list_order, steps_max).run();
}

}  // namespace ropewalk
