// The ranks that a benchmark runs on: the job that this process is in, or one of its own.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ropewalk/communicator.h"

namespace ropewalk::tools {

/// Where ranks are to run, as the flags say it.
struct BenchRanks {
  std::string command = "ropewalk bench";  // for messages
  int count = 0;                           // 0: as many as `hosts` has, else 2
  std::string hosts;                       // as --hosts; empty: here
  std::string remote_ropewalk;             // path on the other hosts; empty: as here
};

/// True in a process that a launcher has started as a rank.
bool is_inside_job();
/// How many ranks launch_bench would start. Throws Error(invalid_argument).
int count_of(const BenchRanks& ranks);
/// Starts this process's own command line on every rank, each bound to a core while there are
/// cores; the exit status. Throws Error.
int launch_bench(const BenchRanks& ranks);

/// Joins the job that this process is in. Throws Error, as well where `ranks`, the value of -n, is
/// neither 0 nor the job's size.
std::shared_ptr<Communicator> join_job(std::string_view command, int ranks, const Options& options);
/// How a rank joins. The environment decides where `transport` is empty, and `secure` false.
Options join_options(const std::string& transport, bool secure,
                     std::optional<std::chrono::nanoseconds> timeout);
/// The value of --timeout; none where `text` is empty. Throws Error(invalid_argument).
std::optional<std::chrono::nanoseconds> parse_timeout(const std::string& text);

}  // namespace ropewalk::tools
