#include "bootstrap/host_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/clock.h"

namespace ropewalk::bootstrap {
namespace {

/// Of several addresses of a host only one may lead there: each is tried in turn, and those before
/// it may still answer.
constexpr int64_t kDialInterval_ns = 100 * kMillisecond_ns;
/// Of all hosts together, where there are no more hosts.
constexpr size_t kDialedMax = 256;
constexpr size_t kNamedMax = 16;

std::string listed(const std::vector<std::string>& items) {
  const size_t shown = std::min(items.size(), kNamedMax);
  std::string text = fmt::format("{}", fmt::join(items.begin(), items.begin() + shown, ", "));
  if (shown < items.size()) text += fmt::format(" and {} more", items.size() - shown);
  return text;
}

/// "host a", "hosts a, b": of the ranks for which `is_meant` holds.
std::string host_list(const PeerTable& table, auto is_meant) {
  std::vector<std::string> names;
  for (const PeerRecord& record : table)
    if (is_meant(record.rank) && std::ranges::count(names, record.host_name) == 0)
      names.push_back(record.host_name);
  return (names.size() == 1 ? "host " : "hosts ") + listed(names);
}

}  // namespace

HostProbe::HostProbe(const PeerTable& table, int rank, const std::set<std::string>& own_ips,
                     int64_t deadline_ns)
    : deadline_ns_(deadline_ns) {
  std::map<std::string_view, Host> hosts;
  for (const PeerRecord& record : table) {
    Host& host = hosts[record.host_id];
    host.ranks.push_back(record.rank);
    for (const std::string& text : record.addresses)
      if (const auto address = numeric_address(text); address && !own_ips.contains(address->ip()))
        host.addresses.push_back(*address);
  }
  hosts.erase(table[static_cast<size_t>(rank)].host_id);
  // Whose addresses are all this host's own is on this host, in another container perhaps.
  for (auto& [id, host] : hosts)
    if (!host.addresses.empty()) hosts_.push_back(std::move(host));
  is_over_ = hosts_.empty();
}

void HostProbe::prepare(PollSet& set) {
  if (is_over_) return;
  set.wake_at(std::min(next_dial_ns_, deadline_ns_));
  for (const Host& host : hosts_)
    for (const UniqueFd& fd : host.dialed) set.add(fd.get(), POLLOUT);
}

void HostProbe::advance(const PollSet& set, int64_t now_ns) {
  if (is_over_) return;
  size_t dialed = 0;
  for (Host& host : hosts_) {
    read(host, set);
    dialed += host.dialed.size();
  }
  if (now_ns >= next_dial_ns_) {
    next_dial_ns_ = now_ns + kDialInterval_ns;
    for (Host& host : hosts_)
      if (!host.has_answered && (host.dialed.empty() || dialed++ < kDialedMax)) dial(host);
  }
  is_over_ = now_ns >= deadline_ns_ || std::ranges::all_of(hosts_, &Host::has_answered);
}

/// Takes the outcome of connections.
void HostProbe::read(Host& host, const PollSet& set) {
  std::erase_if(host.dialed, [&](const UniqueFd& fd) {
    if (!set.take_ready(fd.get())) return false;
    const int error = finish_connect(fd.get());
    host.has_answered |= error == 0 || error == ECONNREFUSED;
    return true;
  });
  if (host.has_answered) host.dialed.clear();
}

void HostProbe::dial(Host& host) {
  UniqueFd fd;
  const int error = begin_connect(host.addresses[host.next], fd);
  if (!fd) return;  // there is no descriptor: later, perhaps
  host.was_asked = true;
  host.has_answered = error == ECONNREFUSED;
  host.next = (host.next + 1) % host.addresses.size();
  if (error == 0) host.dialed.push_back(std::move(fd));
}

std::vector<int> HostProbe::unreachable() const {
  std::vector<int> ranks;
  for (const Host& host : hosts_)
    if (host.was_asked && !host.has_answered)
      ranks.insert(ranks.end(), host.ranks.begin(), host.ranks.end());
  std::ranges::sort(ranks);
  return ranks;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    runs.push_back(last == i
                       ? fmt::format("{}", ranks[i])
                       : fmt::format("{}{}{}", ranks[i], last == i + 1 ? ", " : "-", ranks[last]));
    i = last + 1;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", listed(runs));
}

Failure name_unreachable(Failure failure, const PeerTable& table, std::vector<int> lost,
                         const std::function<int(int)>& rank_in_epoch) {
  const auto is_lost = [&lost](int rank) { return std::ranges::binary_search(lost, rank); };
  const std::string lost_hosts = host_list(table, is_lost);
  std::vector<int> numbers = lost;
  std::ranges::transform(numbers, numbers.begin(), rank_in_epoch);
  failure.reason =
      fmt::format("{} ({}) cannot be reached: {}", rank_list(numbers), lost_hosts, failure.reason);
  failure.advice =
      fmt::format("look at the network between {} and {}; did it go down, or did they?",
                  host_list(table, [&](int rank) { return !is_lost(rank); }), lost_hosts);
  failure.peers = std::move(lost);
  return failure;
}

}  // namespace ropewalk::bootstrap
