#include "simulate/rounds.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace ropewalk {
namespace {

/// Steps wait for the last few before them, or for such as lie a whole phase back.
constexpr uint32_t kNear = 16;

class Shortener {
 public:
  Shortener(const Schedule& schedule, const StepDeps& deps, uint32_t rounds)
      : schedule_(schedule),
        deps_(deps),
        rounds_(std::max(rounds, 2 * kNear)),
        count_(static_cast<uint32_t>(schedule.steps.size())),
        later_(count_) {}

  std::optional<ShortSchedule> run() {
    for (uint32_t step = 0; step < count_; ++step)
      for (uint32_t d = deps_.first[step]; d < deps_.first[step + 1]; ++d)
        if (is_far(step, deps_.deps[d])) {
          later_[deps_.deps[d]].push_back(step);
          shortest_far_ = std::min(shortest_far_, step - deps_.deps[d]);
        }
    find_kept();
    // What is far has ended when it is looked at: all that may be under way at once is less.
    if (out_.repeated.empty() || kept_.size() > shortest_far_) return {};
    fill();
    return std::move(out_);
  }

 private:
  bool is_far(uint32_t step, uint32_t dep) const { return step - dep > kNear; }

  /// Whether `step` does the same as the one a round before it.
  bool repeats(uint32_t step) const {
    const uint32_t before = step - kRoundSteps;
    const Step &a = schedule_.steps[before], &b = schedule_.steps[step];
    if (a.op == StepOp::reduce || a.op != b.op || a.lane != b.lane || a.peer != b.peer)
      return false;
    const uint32_t first = deps_.first[before], shift = deps_.first[step] - first;
    if (deps_.first[step + 1] - deps_.first[before + 1] != shift ||
        deps_.grants_end[step] - deps_.grants_end[before] != shift)
      return false;
    for (uint32_t d = first; d < deps_.first[before + 1]; ++d) {
      const uint32_t one = deps_.deps[d], other = deps_.deps[d + shift];
      if (is_far(before, one) ? !is_far(step, other) : before - one != step - other) return false;
    }
    return std::ranges::equal(
        later_[before], later_[step], {}, [&](uint32_t later) { return stream_of(later); },
        [&](uint32_t later) { return stream_of(later); });
  }

  std::tuple<int32_t, uint8_t, bool> stream_of(uint32_t step) const {
    const Step& at = schedule_.steps[step];
    return {at.peer, at.lane, is_send(at.op)};
  }

  /// Leaves out the last rounds of each repetition.
  void find_kept() {
    for (uint32_t step = 0; step < count_;) {
      uint32_t end = std::min(step + kRoundSteps, count_);
      while (end < count_ && repeats(end)) ++end;
      const uint32_t rounds = (end - step) / kRoundSteps;
      const uint32_t left_out =
          rounds > rounds_ ? (rounds - rounds_) / kRoundsTogether * kRoundsTogether : 0;
      if (left_out == 0) {
        // The next repetition may begin with the last step of this round.
        kept_.push_back(step++);
        continue;
      }
      const auto begin = static_cast<uint32_t>(kept_.size());
      const uint32_t kept_end = end - left_out * kRoundSteps;
      for (; step < kept_end; ++step) kept_.push_back(step);
      out_.repeated.push_back({begin, static_cast<uint32_t>(kept_.size()), left_out});
      step = end;
    }
  }

  void fill() {
    out_.schedule = schedule_;
    out_.schedule.steps.clear();
    std::map<std::tuple<int32_t, uint8_t, bool>, uint32_t> of_stream;
    for (const uint32_t step : kept_) {
      of_stream.try_emplace(stream_of(step), static_cast<uint32_t>(out_.schedule.steps.size()));
      out_.schedule.steps.push_back(schedule_.steps[step]);
    }
    StepDeps& deps = out_.deps;
    for (uint32_t i = 0; i < kept_.size(); ++i) {
      const uint32_t step = kept_[i];
      deps.first.push_back(static_cast<uint32_t>(deps.deps.size()));
      deps.grants_end.push_back(0);
      for (uint32_t d = deps_.first[step]; d <= deps_.first[step + 1]; ++d) {
        if (d == deps_.grants_end[step])
          deps.grants_end.back() = static_cast<uint32_t>(deps.deps.size());
        // As far back as it was: there is one that does the same.
        if (d < deps_.first[step + 1] && !is_far(step, deps_.deps[d]))
          deps.deps.push_back(i - (step - deps_.deps[d]));
      }
      std::vector<uint32_t>& wakes = out_.wakes.emplace_back();
      for (const uint32_t later : later_[step]) wakes.push_back(of_stream.at(stream_of(later)));
    }
    deps.first.push_back(static_cast<uint32_t>(deps.deps.size()));
  }

  const Schedule& schedule_;
  const StepDeps& deps_;
  const uint32_t rounds_, count_;
  std::vector<std::vector<uint32_t>> later_;  // by step: far ones that wait for it
  uint32_t shortest_far_ = UINT32_MAX;
  std::vector<uint32_t> kept_;
  ShortSchedule out_;
};

}  // namespace

std::optional<ShortSchedule> shorten(const Schedule& schedule, const StepDeps& deps,
                                     uint32_t rounds) {
  return Shortener(schedule, deps, rounds).run();
}

}  // namespace ropewalk
