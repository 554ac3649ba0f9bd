// A rank that trains on while a newcomer gets the state: catch_up MEGABYTES
//
// ROPEWALK_ELASTIC=1; the newcomer: ROPEWALK_JOIN_RUNNING=1. Ends some steps after the newcomer has
// caught up. Each rank prints a line of JSON: what it measured. Status 3 where anything is wrong.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ropewalk/communicator.h"

namespace {

using ropewalk::Communicator;
using Clock = std::chrono::steady_clock;

constexpr size_t kGradients = 1000;
constexpr uint64_t kStepsBefore = 200, kStepsAfter = 50;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Of this thread: what it takes where no other process wants the CPU.
double cpu_ms() {
  timespec time;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

/// The same clock on all hosts of a network lab.
double now_s() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

class Trainer {
 public:
  explicit Trainer(size_t bytes)
      : parameters_(bytes / 8, 1), momentum_(bytes / 8), comm_(Communicator::create()) {
    has_state_ = comm_->epoch().number == 0;
    if (has_state_) std::ranges::generate(parameters_, [n = 0]() mutable { return 1.0f / ++n; });
  }

  void run() {
    if (has_state_) {
      while (steps_ < kStepsBefore || !everybody(comm_->pending() > 0)) step();
      median_ms_ = median_and_reset();
      const auto begin = Clock::now();
      auto next = comm_->grow();
      grow_ms_ = ms_since(begin);
      if (!next) throw std::runtime_error("nobody has come");
      comm_ = std::move(next);
    }
    heal();
    for (uint64_t i = 0; i < kStepsAfter; ++i) step();
    const auto report = comm_->sync_state(state(), steps_);
    if (report.sources.size() != static_cast<size_t>(comm_->size()))
      throw std::runtime_error("the ranks' states are not equal");
  }

  void print() const {
    fmt::print(
        "{{\"rank\": {}, \"received\": {}, \"begun_s\": {:.4f}, \"arrived_s\": {:.4f}, "
        "\"steps_meanwhile\": {}, \"start_ms\": {:.1f}, \"start_cpu_ms\": {:.1f}, "
        "\"longest_step_ms\": {:.1f}, \"median_step_ms\": {:.3f}, "
        "\"median_step_before_ms\": {:.3f}, \"grow_ms\": {:.1f}}}\n",
        comm_->rank(), received_, begun_s_, arrived_s_, steps_meanwhile_, start_ms_, start_cpu_ms_,
        longest_ms_, median_meanwhile_ms_, median_ms_, grow_ms_);
  }

 private:
  std::array<ropewalk::NamedBuffer, 2> state() {
    return {ropewalk::NamedBuffer("parameters", parameters_),
            ropewalk::NamedBuffer("momentum", momentum_)};
  }

  /// The recipe of docs/elastic.md.
  void heal() {
    const auto begin = Clock::now();
    const double begin_cpu_ms = cpu_ms();
    auto sync = comm_->start_sync_state(state(), steps_);
    start_ms_ = ms_since(begin);
    start_cpu_ms_ = cpu_ms() - begin_cpu_ms;
    begun_s_ = now_s();
    std::vector<std::vector<float>> missed;
    for (bool is_anybody_late = true; is_anybody_late; ++steps_meanwhile_) {
      is_anybody_late = !everybody(has_state_);
      if (!has_state_) missed.push_back(gradients_);
      if (!has_state_ && sync.done()) {
        const auto report = sync.wait();
        arrived_s_ = now_s();
        received_ = report.bytes_received;
        steps_ = report.revision;
        for (const auto& sums : missed) apply(sums);
        has_state_ = true;
      }
    }
    sync.wait();
    longest_ms_ = *std::ranges::max_element(times_ms_);
    median_meanwhile_ms_ = median_and_reset();
  }

  void step() { everybody(true); }

  /// One step, in which ranks tell something: whether all say so.
  bool everybody(bool says) {
    const auto begin = Clock::now();
    for (size_t i = 0; i < kGradients; ++i)
      gradients_[i] = has_state_ ? parameters_[i] + static_cast<float>(comm_->rank()) : 0;
    gradients_[kGradients] = has_state_ ? 1 : 0;  // how many contribute
    gradients_[kGradients + 1] = says ? 1 : 0;
    comm_->all_reduce(gradients_);
    if (has_state_) apply(gradients_);
    times_ms_.push_back(ms_since(begin));
    return static_cast<int>(gradients_[kGradients + 1]) == comm_->size();
  }

  void apply(std::span<const float> sums) {
    for (size_t i = 0; i < kGradients; ++i) {
      momentum_[i] = 0.9f * momentum_[i] + sums[i] / sums[kGradients];
      parameters_[i] -= 0.01f * momentum_[i];
    }
    ++steps_;
  }

  double median_and_reset() {
    auto times = std::exchange(times_ms_, {});
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  std::vector<float> parameters_, momentum_;
  std::unique_ptr<Communicator> comm_;
  bool has_state_ = false;
  uint64_t steps_ = 0, steps_meanwhile_ = 0, received_ = 0;
  std::vector<float> gradients_ = std::vector<float>(kGradients + 2);
  std::vector<double> times_ms_;
  double begun_s_ = 0, arrived_s_ = 0, start_ms_ = 0, start_cpu_ms_ = 0, longest_ms_ = 0,
         median_meanwhile_ms_ = 0, median_ms_ = 0, grow_ms_ = 0;
};

}  // namespace

int main(int, char** words) {
  try {
    Trainer trainer(std::strtoull(words[1], nullptr, 10) * 1'000'000);
    trainer.run();
    trainer.print();
    return 0;
  } catch (const ropewalk::Error& error) {
    fmt::print(stderr, "catch_up: {}\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "catch_up: wrong {}\n", error.what());
    return 3;
  }
}
