#include "schedule/hosts.h"

#include <algorithm>
#include <map>

namespace ropewalk {
namespace {
bool smaller(const std::vector<int>& a, const std::vector<int>& b) {
  return a.size() < b.size();
}
}  // namespace

int Hosts::size_min() const {
  return static_cast<int>(std::min_element(members.begin(), members.end(), smaller)->size());
}

int Hosts::size_max() const {
  return static_cast<int>(std::max_element(members.begin(), members.end(), smaller)->size());
}

Hosts hosts_of(const std::vector<int>& host_numbers, int ranks) {
  Hosts hosts;
  std::map<int, int> index_of;
  for (int rank = 0; rank < ranks; ++rank) {
    const int number = host_numbers.empty() ? rank : host_numbers[static_cast<size_t>(rank)];
    const int host = index_of.try_emplace(number, hosts.count()).first->second;
    if (host == hosts.count()) hosts.members.emplace_back();
    std::vector<int>& members = hosts.members[static_cast<size_t>(host)];
    hosts.host_of.push_back(host);
    hosts.place_of.push_back(static_cast<int>(members.size()));
    members.push_back(rank);
  }
  return hosts;
}

}  // namespace ropewalk
