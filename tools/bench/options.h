// The flags of `ropewalk bench`, checked.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/shape.h"

namespace ropewalk::tools {

struct BenchOptions {
  BenchKind kind;
  int ranks = 0;              // 0: not said
  std::string transport;      // empty: the library's choice
  bool secure = false;        // or as the environment says
  std::vector<size_t> sizes;  // bytes
  DataType type = DataType::float32;
  ReduceKind op = ReduceKind::sum;
  Algorithm algorithm = Algorithm::automatic;
  int root = 0;
  bool registered = true;
  bool in_place = true;
  int iterations = 0;  // 0: as many as fit in `budget_us`, within these bounds
  double budget_us = 1e6;
  int iterations_min = 10, iterations_max = 5000;
  int warmup = 5;
  std::optional<std::chrono::nanoseconds> timeout;
  bool json = false;
  std::string plot;         // file; empty: none
  std::string plot_beside;  // file with lines of `ropewalk bench --json`; empty: none
};

inline constexpr const char* kSecureHelp =
    "seal what is sent between hosts, which takes TCP; default: ROPEWALK_SECURE, else off";
inline constexpr const char* kSizesHelp = "bytes: 8,64K,1.5MiB or 8:64M (doubling)";
/// "8,64K,1M" and "8:64M" (doubling), mixed at will: the value of --sizes. Throws
/// Error(invalid_argument) of `command`.
std::vector<size_t> parse_size_list(std::string_view text, const std::string& command = "bench");

/// Throws Error(invalid_argument) where the options contradict each other.
void check(const BenchOptions& options);

}  // namespace ropewalk::tools
