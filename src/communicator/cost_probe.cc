#include "communicator/cost_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "reduce/reduce.h"
#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kPingPongs = 10;  // the first warms up
constexpr int kBurst = 6;       // messages that one stream holds, and some to spare
constexpr size_t kAddedBytes = 256 << 10;
constexpr int kAdditions = 4;
/// Pinging, tried twice, ends after so long.
constexpr double kPinging_s = 5e-3;
/// Of each length; more than the least only within so long.
constexpr int kTransfersMin = 2, kTransfersMax = 3;
constexpr double kRepeating_s = 1e-3;
/// A transfer that takes so long has shown the rate; the next would take four times as long.
constexpr double kEnough_s = 6e-3;
/// None begins later than this.
constexpr double kTransferring_s = 14e-3;
/// Over links whose start takes so long nothing is moved: it would show how TCP starts, and no
/// rate.
constexpr double kFarLatency_s = 5e-3;
constexpr std::array<size_t, 5> kTransferBytes = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

/// The link between two hosts, measured by the ranks at both ends. The lower one keeps the clock
/// and tells the other how much comes next.
class LinkProbe {
 public:
  LinkProbe(Communicator& communicator, int peer, Buffer<uint8_t>& buffer)
      : communicator_(communicator),
        peer_(peer),
        leads_(communicator.rank() < peer),
        out_(buffer.span().first(buffer.span().size() / 2)),
        in_(buffer.span().subspan(buffer.span().size() / 2)) {}

  /// On the rank that follows: zeros.
  LinkCost run() {
    const double one_way_s = least_time_s(kPingPongs, 1) / 2;
    const double burst_s = least_time_s(kPingPongs / 2, kBurst) - 2 * one_way_s;
    const double overhead_s = std::clamp(burst_s / (kBurst - 1), 0.0, one_way_s);
    const double s_per_byte = leads_ ? lead_transfers(one_way_s) : follow_transfers();
    if (!leads_) return {};
    return {one_way_s - overhead_s, overhead_s, s_per_byte};
  }

 private:
  /// From the first of `messages` to the answer to the last; the least of `times` but the first.
  /// Fewer times where that takes long: each message tells whether it is of the last.
  double least_time_s(int times, int messages) {
    const auto first = SteadyClock::now();
    double least_s = 1e9;
    bool is_last = false;
    for (int i = 0; !is_last; ++i) {
      const auto begin = SteadyClock::now();
      if (leads_)
        out_[0] = is_last = i + 1 == times || (i > 0 && seconds_since(first) > kPinging_s);
      for (int m = 0; m < messages; ++m) leads_ ? send(1) : receive(1);
      if (!leads_) is_last = in_[0] != 0;
      leads_ ? receive(1) : send(1);
      if (i > 0) least_s = std::min(least_s, seconds_since(begin));
    }
    return least_s;
  }

  /// Ever longer transfers, each several times, since another process may have held one up.
  double lead_transfers(double one_way_s) {
    const auto begin = SteadyClock::now();
    double before_s = one_way_s, s_per_byte = 0;
    size_t before_bytes = 0;
    for (const size_t bytes : kTransferBytes) {
      if (before_s > (before_bytes > 0 ? kEnough_s : kFarLatency_s)) break;
      double least_s = 1e9, spent_s = 0;
      for (int i = 0; i < kTransfersMax && seconds_since(begin) < kTransferring_s; ++i) {
        if (i >= kTransfersMin && spent_s > kRepeating_s) break;
        const double transfer_s = lead_transfer(bytes);
        spent_s += transfer_s;
        least_s = std::min(least_s, transfer_s);
      }
      if (least_s == 1e9) break;
      // The difference of two transfers is free of what every transfer costs.
      s_per_byte =
          std::max(least_s - before_s, least_s / 2) / static_cast<double>(bytes - before_bytes);
      before_s = least_s;
      before_bytes = bytes;
    }
    announce(0);
    return s_per_byte;
  }

  double lead_transfer(size_t bytes) {
    announce(bytes);
    const auto begin = SteadyClock::now();
    exchange(bytes);
    return seconds_since(begin);
  }

  double follow_transfers() {
    for (;;) {
      uint64_t bytes = 0;
      communicator_.recv(std::span(&bytes, 1), peer_);
      if (bytes == 0) return 0;
      if (bytes > in_.size())
        throw Error(ErrorCode::protocol, "communicator",
                    fmt::format("rank {} measures links with {} bytes", peer_, bytes),
                    "install the same Ropewalk on every rank");
      exchange(bytes);
    }
  }

  void announce(uint64_t bytes) { communicator_.send(std::span(&bytes, 1), peer_); }
  void send(size_t bytes) { communicator_.send(out_.first(bytes), peer_); }
  void receive(size_t bytes) { communicator_.recv(in_.first(bytes), peer_); }
  void exchange(size_t bytes) {
    const std::array<Call, 2> both = {Call::recv(in_.first(bytes), peer_),
                                      Call::send(out_.first(bytes), peer_)};
    communicator_.start_group(both).wait();
  }

  Communicator& communicator_;
  const int peer_;
  const bool leads_;
  const std::span<uint8_t> out_, in_;
};

double measure_adding_s_per_byte() {
  const std::vector<float> from(kAddedBytes / sizeof(float), 1);
  std::vector<float> sum = from;
  std::byte* const into = reinterpret_cast<std::byte*>(sum.data());
  const std::array<const std::byte*, 2> sources = {into,
                                                   reinterpret_cast<const std::byte*>(from.data())};
  double least_s = 1e9;
  for (int i = 0; i < kAdditions; ++i) {
    const auto begin = SteadyClock::now();
    reduce(std::span(&into, 1), sources, sum.size(), DataType::float32, kSum);
    least_s = std::min(least_s, seconds_since(begin));
  }
  return least_s / kAddedBytes;
}

/// The first rank of a host measures, with those of the hosts beside its own; others give nothing.
LinkCost measure_links(Communicator& communicator, const Hosts& hosts) {
  const int host = hosts.host_of[static_cast<size_t>(communicator.rank())];
  const auto first_of = [&](int h) { return hosts.members[static_cast<size_t>(h)].front(); };
  LinkCost cost;
  if (communicator.rank() != first_of(host)) return cost;
  auto buffer = communicator.allocate<uint8_t>(2 * kTransferBytes.back());
  const auto measure_with = [&](int other) {
    const LinkCost one = LinkProbe(communicator, first_of(other), buffer).run();
    cost = {std::max(cost.latency_s, one.latency_s), std::max(cost.overhead_s, one.overhead_s),
            std::max(cost.s_per_byte, one.s_per_byte)};
  };
  const int last = hosts.count() - 1, beside = host ^ 1;
  if (beside <= last) measure_with(beside);
  if (last % 2 == 0 && host == 0) measure_with(last);
  if (last % 2 == 0 && host == last) measure_with(0);
  return cost;
}

}  // namespace

Costs measure_costs(Communicator& communicator, const std::vector<int>& hosts, Costs costs) {
  const Hosts by_host = hosts_of(hosts, communicator.size());
  if (by_host.count() == 1) return costs;
  const LinkCost link = measure_links(communicator, by_host);
  const double adding = communicator.rank() == 0 ? measure_adding_s_per_byte() : 0;
  std::array<double, 4> slowest = {link.latency_s, link.overhead_s, link.s_per_byte, adding};
  communicator.all_reduce(slowest, kMax);
  // Nothing was moved over links that are far.
  if (slowest[2] == 0) slowest[2] = costs.model.inter.s_per_byte;
  costs.model.inter = {slowest[0], slowest[1], slowest[2]};
  costs.model.reduce_s_per_byte = slowest[3];
  costs.inter = costs.reduce = CostSource::probe;
  return costs;
}

}  // namespace ropewalk
