// The engine lets a peer write a block while this rank's earlier sends of that block to the same
// peer are still under way (src/engine/program.cc, depend_for_write). That is right only if the
// peer cannot send the block back before it has taken what it was sent: its list must have the
// receive before the send, on one block.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace ropewalk {

using StepId = std::tuple<int, int, int, int>;  // rank, peer, lane, sequence number

struct Matching {
  explicit Matching(const std::vector<Schedule>& all) : schedules(all) {
    for (int rank = 0; rank < std::ssize(schedules); ++rank) {
      std::map<std::pair<int, int>, int> sends, recvs;
      const auto& steps = schedules[static_cast<size_t>(rank)].steps;
      for (size_t i = 0; i < steps.size(); ++i) {
        const std::pair link{steps[i].peer, static_cast<int>(steps[i].lane)};
        if (is_send(steps[i].op))
          send_at[{rank, link.first, link.second, sends[link]++}] = i;
        else if (is_recv(steps[i].op))
          recv_at[{rank, link.first, link.second, recvs[link]++}] = i;
      }
    }
  }
  const std::vector<Schedule>& schedules;  // of all ranks
  std::map<StepId, size_t> send_at, recv_at;
};

/// Empty, or what is wrong with a block that `rank` gets back from a peer.
inline std::string check_rank(const Matching& all, int rank) {
  const auto& steps = all.schedules[static_cast<size_t>(rank)].steps;
  std::map<std::pair<int, int>, int> sends, recvs;
  std::map<int, std::vector<std::pair<int, StepId>>>
      open_sends;  // by block: peer, matching receive
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const std::pair link{step.peer, static_cast<int>(step.lane)};
    if (is_send(step.op)) {
      open_sends[step.block].push_back(
          {step.peer, StepId{step.peer, rank, step.lane, sends[link]++}});
      continue;
    }
    if (is_recv(step.op)) {
      const size_t sent = all.send_at.at({step.peer, rank, step.lane, recvs[link]++});
      const auto& theirs = all.schedules[static_cast<size_t>(step.peer)].steps;
      for (const auto& [peer, place] : open_sends[step.block]) {
        if (step.op != StepOp::recv_copy || peer != step.peer) continue;
        const size_t taken = all.recv_at.at(place);
        if (taken > sent || theirs[taken].block != theirs[sent].block)
          return "rank " + std::to_string(step.peer) + " may send block " +
                 std::to_string(step.block) + " to rank " + std::to_string(rank) +
                 " before it has taken it";
      }
    }
    open_sends[step.block].clear();
  }
  return {};
}

/// The same of all ranks.
inline std::string check_exchange(const std::vector<Schedule>& schedules) {
  const Matching all(schedules);
  std::string wrong;
  for (int rank = 0; rank < std::ssize(schedules); ++rank) wrong += check_rank(all, rank);
  return wrong;
}

}  // namespace ropewalk
