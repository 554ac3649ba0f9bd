// What bench/many_ranks starts on each rank: joins, makes the first calls, and says what that took
// and what the rank holds afterwards.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "ropewalk/communicator.h"
#include "segment.h"

namespace ropewalk::peers {
namespace {

double seconds_since(int64_t begin_ns) {
  return static_cast<double>(MonotonicClock().now_ns() - begin_ns) / 1e9;
}

double cpu_s() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// Of a line of /proc/self/status, as "VmRSS:".
double status_kib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib = 0; word == name && status >> kib) return kib;
  return 0;
}

double descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<double>(std::distance(begin(all), end(all)));
}

/// The most that any rank brings.
std::vector<double> most(Communicator& comm, std::vector<double> of_rank) {
  comm.all_reduce(of_rank, kMax);
  return of_rank;
}

/// `start_ns`: when the launcher was started. Times are those of the slowest rank. Nobody makes a
/// call before all have joined, so that none takes CPU time from joining: they wait in `file`.
nlohmann::json join(int64_t start_ns, size_t bytes, const std::string& file) {
  auto* const flags = static_cast<BarrierFlags*>(map_file(file, sizeof(BarrierFlags)));
  const auto comm = Communicator::create();
  const double joined_s = seconds_since(start_ns), join_cpu_s = cpu_s();
  Barrier(*flags, comm->rank(), comm->size(), Waiting::sleep).wait();
  std::vector<float> vector(bytes / sizeof(float), 1);
  comm->all_reduce(vector);
  const double first_s = seconds_since(start_ns);
  const bool is_right =
      vector == std::vector<float>(vector.size(), static_cast<float>(comm->size()));
  const double rss_mib = status_kib("VmRSS:") / 1024;
  const auto all = most(*comm, {joined_s, first_s, rss_mib, descriptors(), is_right ? 0.0 : 1.0});
  std::vector<double> cpus(static_cast<size_t>(comm->size()));
  cpus[static_cast<size_t>(comm->rank())] = join_cpu_s;
  comm->all_reduce(cpus);
  std::ranges::sort(cpus.begin() + 1, cpus.end());
  if (comm->rank() != 0) return {};
  return {{"ranks", comm->size()}, {"joined_s", all[0]},
          {"first_s", all[1]},     {"rss_mib", all[2]},
          {"descriptors", all[3]}, {"wrong", all[4] > 0},
          {"cpu_0_s", cpus[0]},    {"cpu_median_s", cpus[cpus.size() / 2]}};
}

/// `count` groups of all ranks, one after the other, each with its first all_reduce.
nlohmann::json groups(size_t count) {
  const auto comm = Communicator::create();
  std::vector<float> two(2, 1);
  std::vector<std::unique_ptr<Communicator>> made;
  bool is_right = true;
  const auto make = [&](size_t more) {
    for (size_t i = 0; i < more; ++i) {
      made.push_back(comm->split(0));
      std::ranges::fill(two, 1.0f);
      made.back()->all_reduce(two);
      is_right &= two == std::vector<float>(2, static_cast<float>(comm->size()));
    }
  };
  make(2);  // all connections stand
  comm->barrier();
  const double descriptors_before = descriptors(), kib_before = status_kib("RssAnon:");
  const int64_t begin_ns = MonotonicClock().now_ns();
  make(count);
  const double took_s = seconds_since(begin_ns);
  const auto all = most(*comm, {took_s, descriptors() - descriptors_before,
                                (status_kib("RssAnon:") - kib_before) / static_cast<double>(count),
                                is_right ? 0.0 : 1.0});
  if (comm->rank() != 0) return {};
  return {{"ranks", comm->size()}, {"groups", count},         {"groups_s", all[0]},
          {"descriptors", all[1]}, {"kib_per_group", all[2]}, {"wrong", all[3] > 0}};
}

int run(const std::vector<std::string>& words) {
  const auto number = [&](size_t i) {
    return i < words.size() ? parse_number<int64_t>(words[i]).value_or(-1) : -1;
  };
  nlohmann::json told;
  if (words.size() == 4 && words[0] == "join" && number(1) > 0 && number(2) >= 4) {
    told = join(number(1), static_cast<size_t>(number(2)), words[3]);
  } else if (words.size() == 2 && words[0] == "groups" && number(1) > 0) {
    told = groups(static_cast<size_t>(number(1)));
  } else {
    std::fputs("usage: many_ranks_peer join START_NS BYTES FILE | groups COUNT\n", stderr);
    return 2;
  }
  if (!told.is_null()) std::printf("%s\n", told.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace ropewalk::peers

int main(int argc, char** argv) {
  try {
    return ropewalk::peers::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
