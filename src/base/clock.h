// Time as the engine sees it: the machine's, or a simulation's.
#pragma once

#include <cstdint>
#include <ctime>

namespace ropewalk {

inline constexpr int64_t kMillisecond_ns = 1'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
};

class MonotonicClock final : public Clock {
 public:
  int64_t now_ns() const override {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }
};

}  // namespace ropewalk
