#include "tools/bench/p2p_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "job/job.h"
#include "tools/bench/job.h"
#include "tools/bench/memory.h"
#include "tools/bench/p2p_link.h"
#include "tools/bench/p2p_report.h"
#include "tools/bench/time_summary.h"

namespace ropewalk::tools {
namespace {

constexpr double kLatencyBudgetUs = 250e3;  // of a size, where no number of iterations is given
constexpr double kRoundBudgetUs = 5e3;
constexpr int kMessagesMin = 10, kMessagesMax = 100000;
constexpr int kRounds = 25;       // bandwidth: the median of these
constexpr int kPutsPerPoll = 16;  // while posting: what arrives must not fill up
constexpr int kChecks = 3;        // of content
constexpr int kSignalsChecked = 1000;

// Different at every place, and in every round and direction.
std::byte pattern(size_t i, int rank, int round) {
  const size_t x = (i + 1) * 0x9e3779b97f4a7c15 + static_cast<size_t>(rank * kChecks + round) * 77;
  return static_cast<std::byte>(x >> 56);
}

class P2pPair {
 public:
  P2pPair(P2pLink& link, const P2pOptions& options, int rank)
      : link_(link), options_(options), rank_(rank) {}

  P2pResult run(size_t bytes) {
    P2pResult result;
    result.bytes = bytes;
    std::vector<double> us(static_cast<size_t>(std::max(options_.warmup, 2)));
    ping_pong(bytes, us);
    result.iterations = agree(summarize_times(us).median_us, kLatencyBudgetUs);
    us.assign(static_cast<size_t>(result.iterations), 0);
    ping_pong(bytes, us);
    result.latency = summarize_times(us);
    if (options_.kind == P2pKind::put) measure_bandwidth(bytes, result);
    result.wrong = check(bytes);
    return result;
  }

 private:
  bool leads() const { return rank_ == 0; }

  /// The same number on both ranks: rank 0's.
  int agree(double message_us, double budget_us) {
    const double fitting = std::clamp(budget_us / std::max(message_us, 0.01), double{kMessagesMin},
                                      double{kMessagesMax});
    const auto own = static_cast<uint64_t>(options_.iterations > 0 ? options_.iterations
                                                                   : static_cast<int>(fitting));
    const uint64_t theirs = link_.exchange(own);
    return static_cast<int>(leads() ? own : theirs);
  }

  /// There and back, once.
  void bounce(size_t bytes) {
    if (leads()) link_.put(bytes);
    link_.await_puts(1);
    if (leads()) return;
    if (options_.kind == P2pKind::pingpong)
      link_.put_back(bytes);
    else
      link_.put(bytes);
  }

  /// Fills `us` with halves of round trips: both ranks see the same ones.
  void ping_pong(size_t bytes, std::span<double> us) {
    link_.exchange(0);
    double begin = now_us();
    for (double& time : us) {
      bounce(bytes);
      const double end = now_us();
      time = (end - begin) / 2;
      begin = end;
    }
  }

  /// The time until all of `messages` have arrived, each way that is measured.
  double stream_us(size_t bytes, int messages) {
    const bool sends = leads() || options_.both, receives = !leads() || options_.both;
    link_.exchange(0);
    const double begin = now_us();
    for (int i = 0; sends && i < messages; ++i) {
      link_.put(bytes);
      if (i % kPutsPerPoll == 0) link_.poll();
    }
    if (receives) {
      link_.await_puts(static_cast<uint64_t>(messages));
      link_.put(0);
    }
    if (sends) link_.await_puts(1);
    const double us = now_us() - begin;
    link_.await_out();
    return us;
  }

  void measure_bandwidth(size_t bytes, P2pResult& result) {
    const int warmup = std::max(options_.warmup, kMessagesMin);
    const int messages = agree(stream_us(bytes, warmup) / warmup, kRoundBudgetUs);
    std::vector<double> us;
    for (int round = 0; round < kRounds; ++round) us.push_back(stream_us(bytes, messages));
    const double moved = messages * (options_.both ? 2.0 : 1.0);
    result.message_rate_mps = moved / summarize_times(us).median_us;
    result.bw_gbs = result.message_rate_mps * static_cast<double>(bytes) / 1e3;
  }

  /// Known content, once more; what is wrong on both ranks.
  uint64_t check(size_t bytes) {
    uint64_t wrong = 0;
    for (int round = 0; round < kChecks; ++round)
      wrong +=
          options_.kind == P2pKind::pingpong ? check_echo(bytes, round) : check_put(bytes, round);
    if (options_.kind == P2pKind::signal) {
      std::vector<double> us(kSignalsChecked);
      ping_pong(bytes, us);
    }
    wrong += link_.misplaced() - misplaced_before_;
    misplaced_before_ = link_.misplaced();
    return wrong + link_.exchange(wrong);
  }

  void fill(size_t bytes, int round) {
    link_.await_out();  // the last put's source
    for (size_t i = 0; i < bytes; ++i) link_.out()[i] = pattern(i, rank_, round);
    std::fill_n(link_.in(), bytes, std::byte{});
    link_.exchange(0);
  }
  uint64_t count_wrong(size_t bytes, int from, int round) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < bytes; ++i) wrong += link_.in()[i] != pattern(i, from, round);
    return wrong;
  }

  uint64_t check_put(size_t bytes, int round) {
    fill(bytes, round);
    link_.put(bytes);
    link_.await_puts(1);
    const uint64_t wrong = count_wrong(bytes, 1 - rank_, round);
    link_.exchange(0);
    return wrong;
  }

  /// What rank 0 sends must come back.
  uint64_t check_echo(size_t bytes, int round) {
    fill(bytes, round);
    bounce(bytes);
    const uint64_t wrong = count_wrong(bytes, 0, round);
    link_.exchange(0);
    return wrong;
  }

  P2pLink& link_;
  const P2pOptions& options_;
  const int rank_;
  uint64_t misplaced_before_ = 0;
};

uint64_t measure(Job& job, const P2pOptions& options) {
  const int peer = 1 - job.rank();
  Transport& transport =
      *job.transports()[static_cast<size_t>(job.route()[static_cast<size_t>(peer)])];
  const bool prints = job.rank() == 0;
  const size_t bytes_max = *std::max_element(options.sizes.begin(), options.sizes.end());
  P2pLink link({transport, job.monitor(), fmt::format("bench {}", name_of(options.kind)),
                job.rank(), peer, bytes_max, job.config().timeout.count()});
  P2pPair pair(link, options, job.rank());
  if (prints && !options.json) print(p2p_table_header(options, transport.name()));
  uint64_t wrong = 0;
  for (const size_t bytes : options.sizes) {
    const P2pResult result = pair.run(bytes);
    wrong += result.wrong;
    if (!prints) continue;
    print(options.json ? p2p_json_line(options, transport.name(), result)
                       : p2p_table_line(options, result));
  }
  link.exchange(0);
  return wrong;
}

/// Ranks that only belong to the job.
void look_on(Job& job) {
  while (!job.monitor().has_left(0) || !job.monitor().has_left(1)) {
    if (const Failure* failure = job.monitor().failure()) throw Error(*failure);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

int run_p2p_rank(const P2pOptions& options) {
  Job job(join_options(options.transport, options.secure, options.timeout));
  if (job.size() < 2)
    throw Error(ErrorCode::invalid_argument, "bench",
                fmt::format("{} needs two ranks", name_of(options.kind)),
                "run it outside a job, or in one of two ranks");
  if (options.ranks > 0 && options.ranks != job.size())
    throw Error(ErrorCode::invalid_argument, "bench",
                fmt::format("-n {} inside a job of {} ranks", options.ranks, job.size()),
                "leave -n away to measure in the job that this runs in");
  if (job.rank() < 2) check_memory(options.sizes, buffer_bytes(options));
  uint64_t wrong = 0;
  if (job.rank() < 2)
    wrong = measure(job, options);
  else
    look_on(job);
  job.leave({}, [&job] {
    std::array<Completion, 16> ignored;
    size_t moved = 0;
    for (Transport* transport : job.transports()) moved += transport->poll(ignored);
    return moved > 0;
  });
  return wrong == 0 ? 0 : 1;
}

}  // namespace ropewalk::tools
