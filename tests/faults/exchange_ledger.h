// Tells of every exchange of an AsyncEa how often it is in the center, whoever exchanges meanwhile.
//
// alpha is so small that delta = alpha (parameters - center) is, except for far less than a half,
// what the worker chose: 4^worker in the elements of a lane of its own for each of its exchanges,
// else 0. So an element of the center, rounded, is a number in base 4 whose digits count exchanges:
// one that is in it twice shows, and so does one that is not.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ropewalk::testing {

/// Lies in memory that all ranks share, zeroed at first. Workers are numbered as the ranks of the
/// first epoch.
class ExchangeLedger {
 public:
  static constexpr double kAlpha = 0x1p-40;
  static constexpr size_t kWorkers = 8, kLanes = 512;

  enum State : uint8_t { unused, begun, ended, failed };

  /// `parameters` for that exchange.
  void begin(size_t worker, size_t exchange, std::span<double> parameters) {
    const double delta = std::ldexp(1.0, static_cast<int>(2 * worker));
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i] = i % kLanes == exchange ? delta / kAlpha : 0;
    states_[worker][exchange] = begun;
  }
  void end(size_t worker, size_t exchange) { states_[worker][exchange] = ended; }
  void fail(size_t worker, size_t exchange) { states_[worker][exchange] = failed; }
  /// What `resume` has returned, after that exchange had failed.
  void tell(size_t worker, size_t exchange, size_t elements) { told_[worker][exchange] = elements; }
  State state(size_t worker, size_t exchange) const { return states_[worker][exchange]; }

  /// What is wrong with `center`; empty: nothing. Pieces must be whole numbers of lanes. Of workers
  /// for which `is_dead` says so exchanges may be missing where `may_miss(element)` says so.
  template <class IsDead, class MayMiss>
  std::string errors_in(std::span<const double> center, IsDead is_dead, MayMiss may_miss) const {
    std::array<std::array<size_t, kLanes>, kWorkers> found{};
    for (size_t i = 0; i < center.size(); ++i) {
      const auto digits = static_cast<uint64_t>(std::llround(center[i]));
      if (std::abs(center[i] - static_cast<double>(digits)) > 0.1)
        return "element " + std::to_string(i) + " is " + std::to_string(center[i]);
      for (size_t worker = 0; worker < kWorkers; ++worker) {
        const uint64_t count = digits >> (2 * worker) & 3;
        const State state = states_[worker][i % kLanes];
        found[worker][i % kLanes] += count;
        if (count > 1 || (count == 1 && state == unused) ||
            (count == 0 && state == ended && !(is_dead(worker) && may_miss(i))))
          return describe(worker, i % kLanes) + " is " + std::to_string(count) +
                 " times in element " + std::to_string(i);
      }
    }
    for (size_t worker = 0; worker < kWorkers; ++worker)
      for (size_t exchange = 0; exchange < kLanes; ++exchange)
        if (states_[worker][exchange] == failed && !is_dead(worker) &&
            told_[worker][exchange] != found[worker][exchange] * kLanes)
          return describe(worker, exchange) + " is in " +
                 std::to_string(found[worker][exchange] * kLanes) + " elements, not in " +
                 std::to_string(told_[worker][exchange]);
    return {};
  }

 private:
  std::string describe(size_t worker, size_t exchange) const {
    constexpr std::array kNames = {"unused", "begun", "ended", "failed"};
    return std::string("exchange ") + std::to_string(exchange) + " of worker " +
           std::to_string(worker) + ", " + kNames[states_[worker][exchange]] + ",";
  }

  std::array<std::array<std::atomic<State>, kLanes>, kWorkers> states_{};
  std::array<std::array<std::atomic<size_t>, kLanes>, kWorkers> told_{};
};

}  // namespace ropewalk::testing
