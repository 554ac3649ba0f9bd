#include "communicator/cost_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <iterator>
#include <span>

#include "reduce/reduce.h"
#include "schedule/builders.h"

namespace ropewalk {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kPingPongs = 10;  // the first warms up
constexpr int kBurst = 6;       // messages that one stream holds, and some to spare
constexpr size_t kAddedBytes = 256 << 10;
constexpr int kAdditions = 4;
/// Pinging, tried twice, ends after so long.
constexpr double kPinging_s = 5e-3;
/// Transfers of one length are repeated beyond the least only within so long.
constexpr double kRepeating_s = 1e-3;
struct TransferLimits {
  int times_min, times_max;  // of each length
  /// A transfer that takes so long has shown the rate: another process does not hold it up for long
  /// beside that. The next would take four times as long.
  double enough_s;
  double last_begin_s;  // none begins later
};
constexpr TransferLimits kThorough = {2, 3, 6e-3, 14e-3};
/// For links that matter only where they are slow: those that seem so are measured again.
constexpr TransferLimits kBrief = {1, 1, 2e-3, 7e-3};
/// So many times as slow as most, a link parts two racks.
constexpr double kSlow = 2.5;
/// So many times as far as most, a link leads to another place.
constexpr double kFar = 8;
/// Over links whose latency is so long so much is moved, once: that shows how TCP starts, as it
/// does in each call after a pause, more than a rate.
constexpr double kFarLatency_s = 5e-3;
constexpr size_t kFarBytes = 64 << 10;
constexpr size_t kUsualBytesMax = 256 << 10;  // of links of some 100 Mbit/s
constexpr std::array<size_t, 5> kTransferBytes = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

/// What is sent, and as much that is received. To make a page present takes as long as to send it
/// over a slow link: no more than is used.
class TransferMemory {
 public:
  explicit TransferMemory(Communicator& communicator) : communicator_(communicator) {}

  void reserve(size_t bytes) {
    if (bytes <= bytes_) return;
    memory_ = communicator_.allocate<uint8_t>(2 * bytes);
    bytes_ = bytes;
  }
  std::span<uint8_t> out(size_t bytes) const { return memory_.span().first(bytes); }
  std::span<uint8_t> in(size_t bytes) const { return memory_.span().subspan(bytes_, bytes); }

 private:
  Communicator& communicator_;
  Buffer<uint8_t> memory_;
  size_t bytes_ = 0;
};

/// The link between two hosts, measured by the ranks at both ends. The lower one keeps the clock
/// and tells the other how much comes next.
class LinkProbe {
 public:
  LinkProbe(Communicator& communicator, int peer, TransferMemory& memory)
      : communicator_(communicator),
        peer_(peer),
        leads_(communicator.rank() < peer),
        memory_(memory) {}

  /// On the rank that follows: zeros.
  LinkCost run() {
    const double ping_s = least_time_s(kPingPongs, 1);
    const double burst_s = least_time_s(kPingPongs / 2, kBurst);
    // Where even a burst came back earlier, other processes have held up the pings.
    const double one_way_s = std::min(ping_s, burst_s) / 2;
    const double overhead_s = std::min((burst_s - 2 * one_way_s) / (kBurst - 1), one_way_s);
    const double s_per_byte = leads_ ? lead_transfers(one_way_s, kThorough) : follow_transfers();
    if (!leads_) return {};
    return {one_way_s - overhead_s, overhead_s, s_per_byte};
  }
  /// The rate, 0 where what every transfer costs hides it; and how far the other end is.
  LinkCost run_briefly() {
    const double one_way_s = least_time_s(2, 1) / 2;
    const double s_per_byte = leads_ ? lead_transfers(one_way_s, kBrief) : follow_transfers();
    if (!leads_) return {};
    return {one_way_s, 0, shows_rate_ ? s_per_byte : 0};
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
        memory_.out(1)[0] = is_last =
            i + 1 == times || (i > 0 && seconds_since(first) > kPinging_s);
      for (int m = 0; m < messages; ++m) leads_ ? send(1) : receive(1);
      if (!leads_) is_last = memory_.in(1)[0] != 0;
      leads_ ? receive(1) : send(1);
      if (i > 0) least_s = std::min(least_s, seconds_since(begin));
    }
    return least_s;
  }

  /// Ever longer transfers, each several times, since another process may have held one up.
  double lead_transfers(double one_way_s, const TransferLimits& limits) {
    if (one_way_s > kFarLatency_s) return lead_far_transfer(one_way_s);
    const auto begin = SteadyClock::now();
    double before_s = one_way_s, s_per_byte = 0;
    size_t before_bytes = 0;
    for (const size_t bytes : kTransferBytes) {
      if (before_bytes > 0 && before_s > limits.enough_s) break;
      double least_s = 1e9, spent_s = 0;
      for (int i = 0; i < limits.times_max && seconds_since(begin) < limits.last_begin_s; ++i) {
        if ((i >= limits.times_min && spent_s > kRepeating_s) || spent_s > limits.enough_s) break;
        const double transfer_s = lead_transfer(bytes);
        spent_s += transfer_s;
        least_s = std::min(least_s, transfer_s);
      }
      if (least_s == 1e9) break;
      // The difference of two transfers is free of what every transfer costs.
      shows_rate_ = least_s - before_s >= least_s / 2;
      s_per_byte =
          std::max(least_s - before_s, least_s / 2) / static_cast<double>(bytes - before_bytes);
      before_s = least_s;
      before_bytes = bytes;
    }
    announce(0);
    return s_per_byte;
  }

  double lead_far_transfer(double one_way_s) {
    const double transfer_s = lead_transfer(kFarBytes);
    announce(0);
    shows_rate_ = true;
    // The other end begins a way later, and what it sends takes another.
    return std::max(transfer_s - 2 * one_way_s, transfer_s / 4) / kFarBytes;
  }

  double lead_transfer(size_t bytes) {
    memory_.reserve(bytes);
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
      if (bytes > kTransferBytes.back())
        throw Error(ErrorCode::protocol, "communicator",
                    fmt::format("rank {} measures links with {} bytes", peer_, bytes),
                    "install the same Ropewalk on every rank");
      memory_.reserve(bytes);  // where that takes long, the next such transfer tells the rate
      exchange(bytes);
    }
  }

  void announce(uint64_t bytes) { communicator_.send(std::span(&bytes, 1), peer_); }
  void send(size_t bytes) { communicator_.send(memory_.out(bytes), peer_); }
  void receive(size_t bytes) { communicator_.recv(memory_.in(bytes), peer_); }
  void exchange(size_t bytes) {
    const std::array<Call, 2> both = {Call::recv(memory_.in(bytes), peer_),
                                      Call::send(memory_.out(bytes), peer_)};
    communicator_.start_group(both).wait();
  }

  Communicator& communicator_;
  const int peer_;
  const bool leads_;
  bool shows_rate_ = false;  // the last transfer: most of it was moving bytes
  TransferMemory& memory_;
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

/// The links of the ring of hosts: link h leads from host h to the next.
class RingProbe {
 public:
  RingProbe(Communicator& communicator, const Hosts& hosts)
      : communicator_(communicator),
        hosts_(hosts),
        host_(hosts.host_of[static_cast<size_t>(communicator.rank())]),
        measures_(communicator.rank() == first_of(host_)),
        memory_(communicator) {
    if (measures_) memory_.reserve(kUsualBytesMax);
  }

  int links() const { return hosts_.count() == 2 ? 1 : hosts_.count(); }

  /// On all ranks: calls `measure(link, probe)` on the first rank of each host for the links
  /// [0, links) that `is_wanted` and that its host is an end of, those side by side that can be.
  template <class Wanted, class Measure>
  void for_each(const Wanted& is_wanted, const Measure& measure) {
    if (!measures_) return;
    // Even links, then odd ones; the last of an odd number of hosts meets both.
    for (const int turn : {0, 1, 2})
      for (const int link : {host_, wrap(host_ - 1, hosts_.count())})
        if (link < links() && turn_of(link) == turn && is_wanted(link))
          measure(link, LinkProbe(communicator_, first_of(other_end(link)), memory_));
  }

 private:
  int first_of(int host) const { return hosts_.members[static_cast<size_t>(host)].front(); }
  int other_end(int link) const { return link == host_ ? wrap(host_ + 1, hosts_.count()) : link; }
  int turn_of(int link) const { return link % 2 == 0 && link == hosts_.count() - 1 ? 2 : link % 2; }

  Communicator& communicator_;
  const Hosts& hosts_;
  const int host_;
  const bool measures_;
  TransferMemory memory_;
};

/// Those that are known, not 0, in ascending order.
std::vector<double> known_of(const std::vector<double>& values) {
  std::vector<double> known;
  std::ranges::copy_if(values, std::back_inserter(known), [](double one) { return one > 0; });
  std::ranges::sort(known);
  return known;
}

/// What the better ones of the links take, of which two lead to each slow host; 0: not known.
double usual(const std::vector<double>& s_per_byte) {
  const std::vector<double> known = known_of(s_per_byte);
  return 2 * known.size() < s_per_byte.size() ? 0 : known[(known.size() - 1) / 3];
}

/// The upper median: the most would be what another process held up longest. 0: none is known.
double median(const std::vector<double>& values) {
  const std::vector<double> known = known_of(values);
  return known.empty() ? 0 : known[known.size() / 2];
}

/// Of the links of the ring; equal on all ranks.
struct RingCosts {
  double latency_s = 0, overhead_s = 0;
  std::vector<double> s_per_byte;  // by link; 0: not known
};

RingCosts measure_ring(Communicator& communicator, RingProbe& ring) {
  const auto links = static_cast<size_t>(ring.links());
  std::vector<double> found(3 * links);
  const auto note = [&](int link, const LinkCost& cost) {
    const auto at = static_cast<size_t>(link);
    found[at] = cost.s_per_byte;
    found[links + at] = cost.latency_s;
    found[2 * links + at] = cost.overhead_s;
  };
  const auto is_even = [](int link) { return link % 2 == 0; };
  ring.for_each(is_even, [&](int link, LinkProbe probe) { note(link, probe.run()); });
  const auto is_odd = [](int link) { return link % 2 != 0; };
  ring.for_each(is_odd, [&](int link, LinkProbe probe) {
    LinkCost brief = probe.run_briefly();
    // Of two pings the shorter is a guess, except over far links.
    if (brief.latency_s <= kFarLatency_s) brief.latency_s = 0;
    note(link, brief);
  });
  communicator.all_reduce(std::span(found), kMax);
  const auto third = [&](size_t which) {
    const auto begin = found.begin() + static_cast<std::ptrdiff_t>(which * links);
    return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(links));
  };
  return {latency_of(third(1)), median(third(2)), third(0)};
}

/// Links that are slow twice: another job may have held them up once.
std::vector<bool> find_slow(Communicator& communicator, RingProbe& ring, RingCosts& costs) {
  const double limit = kSlow * usual(costs.s_per_byte);
  std::vector<bool> slow(costs.s_per_byte.size());
  for (size_t link = 0; link < slow.size(); ++link)
    slow[link] = limit > 0 && costs.s_per_byte[link] > limit;
  if (std::ranges::find(slow, true) == slow.end()) return slow;
  std::vector<double> again(slow.size());
  ring.for_each([&](int link) { return slow[static_cast<size_t>(link)]; },
                [&](int link, LinkProbe probe) {
                  again[static_cast<size_t>(link)] = probe.run_briefly().s_per_byte;
                });
  communicator.all_reduce(std::span(again), kMax);
  for (size_t link = 0; link < slow.size(); ++link) {
    if (slow[link] && again[link] > 0)
      costs.s_per_byte[link] = std::min(costs.s_per_byte[link], again[link]);
    slow[link] = slow[link] && again[link] > limit;
  }
  return slow;
}

}  // namespace

double latency_of(const std::vector<double>& links) {
  assert(!links.empty());
  const double most = std::ranges::max(links), usual_s = median(links);
  return most > kFar * usual_s ? most : usual_s;
}

std::vector<int> racks_between(const std::vector<bool>& slow) {
  assert(!slow.empty());
  const size_t hosts = slow.size();
  std::vector<int> racks(hosts);
  int rack = 0;
  for (size_t host = 0; host < hosts; ++host) {
    racks[host] = rack;
    rack += slow[host] ? 1 : 0;
  }
  const int last = racks.back();
  if (!slow.back())  // the ring goes on from the last host to the first
    std::ranges::replace(racks, last, 0);
  return std::ranges::max(racks) > 0 ? racks : std::vector<int>();
}

Costs measure_costs(Communicator& communicator, const std::vector<int>& hosts, Costs costs) {
  const Hosts by_host = hosts_of(hosts, communicator.size());
  if (by_host.count() == 1) return costs;
  RingProbe ring(communicator, by_host);
  RingCosts found = measure_ring(communicator, ring);
  const std::vector<bool> slow = find_slow(communicator, ring, found);
  const std::vector<int> racks = by_host.count() > 2 ? racks_between(slow) : std::vector<int>();
  std::vector<double> like_most;
  double slowest = 0;
  for (size_t link = 0; link < slow.size(); ++link) {
    const double s_per_byte = found.s_per_byte[link];
    if (slow[link])
      slowest = std::max(slowest, s_per_byte);
    else
      like_most.push_back(s_per_byte);
  }
  double s_per_byte = racks.empty() && slowest > 0 ? slowest : median(like_most);
  if (s_per_byte == 0) s_per_byte = costs.model.inter.s_per_byte;
  costs.model.inter = {found.latency_s, found.overhead_s, s_per_byte};
  costs.model.racks_s_per_byte = racks.empty() ? 0 : slowest;
  costs.racks.clear();
  for (const int host : racks.empty() ? std::vector<int>() : by_host.host_of)
    costs.racks.push_back(racks[static_cast<size_t>(host)]);
  std::array<double, 1> adding = {communicator.rank() == 0 ? measure_adding_s_per_byte() : 0};
  communicator.all_reduce(adding, kMax);
  costs.model.reduce_s_per_byte = adding[0];
  costs.inter = costs.reduce = CostSource::probe;
  return costs;
}

}  // namespace ropewalk
