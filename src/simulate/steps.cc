#include "simulate/steps.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "ropewalk/status.h"
#include "simulate/picoseconds.h"
#include "simulate/state.h"

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
  BlockDeps(size_t blocks, StepDeps& out) : blocks_(blocks), out_(out) {}

  void add(const Step& step, uint32_t index) {
    State& block = blocks_[static_cast<size_t>(step.block)];
    out_.first.push_back(static_cast<uint32_t>(out_.deps.size()));
    if (is_send(step.op)) {
      depend_on(block.last_writer);
      out_.grants_end.push_back(static_cast<uint32_t>(out_.deps.size()));
      block.readers.push_back({index, step.peer});
      return;
    }
    depend_on(block.last_writer);
    for (const Reader& reader : block.readers)
      if (reader.peer != step.peer) depend_on(reader.step);
    out_.grants_end.push_back(static_cast<uint32_t>(out_.deps.size()));
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
  StepDeps& out_;
};

/// Of a rank's steps, the first of which has that number.
void add_deps(const Schedule& schedule, bool in_list_order, uint32_t first, StepDeps& out) {
  BlockDeps deps(static_cast<size_t>(schedule.blocks + schedule.scratch), out);
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    if (!in_list_order) {
      deps.add(schedule.steps[i], first + i);
      continue;
    }
    out.first.push_back(static_cast<uint32_t>(out.deps.size()));
    if (i > 0) out.deps.push_back(first + i - 1);
    out.grants_end.push_back(static_cast<uint32_t>(out.deps.size()));
  }
}

class StepsBuilder {
 public:
  StepsBuilder(Routes& routes, const CallToSimulate& call, const StepsWanted& wanted)
      : routes_(routes), call_(call), wanted_(wanted) {}

  SimulatedSteps run() {
    find_alike();
    const uint32_t ranks =
        static_cast<uint32_t>(call_.event_by_event ? alike_.ranks : alike_.period);
    out_.ranks_each = static_cast<uint64_t>(alike_.ranks) / ranks;
    shorten_rounds();
    check_size(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) add_rank(rank);
    out_.step_first.push_back(static_cast<uint32_t>(out_.steps.size()));
    out_.deps.first.push_back(static_cast<uint32_t>(out_.deps.deps.size()));
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
      alike_ = no_symmetry(routes_.network());
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
      if (steps > wanted_.steps_max) refuse_steps(key);
    }
    alike_ = find_symmetry(routes_, key, symmetry_, first_, call_.messages_max);
  }

  /// Only where all ranks do the same, so that they leave out the same.
  void shorten_rounds() {
    if (wanted_.rounds == 0 || call_.event_by_event || call_.on_message ||
        symmetry_.kind != Symmetry::Kind::shift || symmetry_.unit != 1)
      return;
    StepDeps deps;
    add_deps(first_[0], wanted_.in_list_order, 0, deps);
    deps.first.push_back(static_cast<uint32_t>(deps.deps.size()));
    short_ = shorten(first_[0], deps, wanted_.rounds * static_cast<uint32_t>(alike_.period));
    if (!short_) return;
    first_[0] = std::move(short_->schedule);
    out_.repeated = short_->repeated;
  }

  void check_size(uint32_t ranks) {
    // Without symmetry the first rank says nothing of the others: add_rank counts.
    if (symmetry_.kind == Symmetry::Kind::none) return;
    const uint64_t each = first_[0].steps.size();
    if (each * ranks > wanted_.steps_max) refuse_steps(call_.key);
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
    if (out_.steps.size() + schedule.steps.size() > wanted_.steps_max) refuse_steps(call_.key);
    add_deps_of(schedule);
    auto& keys = stream_of_.emplace_back();
    for (Step step : schedule.steps) {
      if (step.peer >= 0 && by != 0)
        step.peer = symmetry_.kind == Symmetry::Kind::exclusive_or
                        ? step.peer ^ by
                        : (step.peer + by) % call_.key.ranks;
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
    }
  }

  void add_deps_of(const Schedule& schedule) {
    const uint32_t step = out_.step_first.back();
    StepDeps& out = out_.deps;
    if (!short_) return add_deps(schedule, wanted_.in_list_order, step, out);
    const auto first = static_cast<uint32_t>(out.deps.size());
    const StepDeps& one = short_->deps;
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      out.first.push_back(first + one.first[i]);
      out.grants_end.push_back(first + one.grants_end[i]);
    }
    for (const uint32_t dep : one.deps) out.deps.push_back(step + dep);
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
      if (path.size() > kHopsMax)
        throw Error(ErrorCode::exhausted, "simulate",
                    fmt::format("a way of {} links is too long", path.size()));
      stream.inside = path.empty();
      stream.latency_ps =
          picoseconds(stream.inside ? network.within.latency_s : network.between.latency_s);
      for (const LinkWay way : path)
        stream.latency_ps +=
            picoseconds(network.links[static_cast<size_t>(way / 2)].all_latency_s());
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
        peer = alike_.map_rank(stream.peer, static_cast<int>(stream.rank));
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
    const StepDeps& deps = out_.deps;
    const auto count = static_cast<uint32_t>(out_.steps.size());
    const auto woken_by = [&](uint32_t step) -> const std::vector<uint32_t>& {
      static const std::vector<uint32_t> nothing;
      return short_ ? short_->wakes[out_.local(step)] : nothing;
    };
    out_.after_first.assign(count + 1, 0);
    for (const uint32_t before : deps.deps) ++out_.after_first[before + 1];
    for (uint32_t step = 0; step < count; ++step)
      out_.after_first[step + 1] += static_cast<uint32_t>(woken_by(step).size());
    for (size_t i = 1; i < out_.after_first.size(); ++i)
      out_.after_first[i] += out_.after_first[i - 1];
    out_.after.resize(out_.after_first.back());
    std::vector<uint32_t> fill(out_.after_first.begin(), out_.after_first.end() - 1);
    for (uint32_t step = 0; step < count; ++step)
      for (uint32_t d = deps.first[step]; d < deps.first[step + 1]; ++d)
        out_.after[fill[deps.deps[d]]++] = step;
    for (uint32_t step = 0; step < count; ++step)
      for (const uint32_t woken : woken_by(step))
        out_.after[fill[step]++] = out_.step_first[out_.rank_of[step]] + woken;
  }

  Routes& routes_;
  const CallToSimulate& call_;
  const StepsWanted wanted_;
  Symmetry symmetry_;
  RankSymmetry alike_;
  std::vector<Schedule> first_;
  std::optional<ShortSchedule> short_;
  std::vector<std::map<StreamKey, uint32_t>> stream_of_;  // by rank that is run
  SimulatedSteps out_;
};

}  // namespace

SimulatedSteps steps_of(Routes& routes, const CallToSimulate& call, const StepsWanted& wanted) {
  return StepsBuilder(routes, call, wanted).run();
}

}  // namespace ropewalk
