// Which algorithm, and how large the slices: a pure function, so that equal questions give equal
// answers on every rank and nothing needs to be agreed upon. Times come from closed forms of the
// cost model (schedule/cost.h), corrected by what calls were measured to take; they are for
// comparing, not for promising.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/cost.h"
#include "schedule/schedule.h"

namespace ropewalk {

/// How long calls of so many bytes (as in a PlanRequest) took in a job of these ranks.
struct MeasuredTime {
  Collective collective;
  Algorithm algorithm;
  size_t bytes;
  double seconds;

  bool operator==(const MeasuredTime&) const = default;
};

/// What is known of a schedule that was made for the network (simulate/job_network.h).
struct MadeSchedule {
  double predicted_s = 0;
  /// What the best algorithm takes, by the same model. 0: it was not looked at, and what was made
  /// is chosen by force alone.
  double otherwise_s = 0;
  size_t slice_bytes = 64 << 10;
  int partners = 0;
  std::string told;     // "16 trees of depth 4, ..."
  std::string why_not;  // there is none; empty: there is
};
/// What a call of the request's bytes takes on the network that was described.
struct SimulatedTime {
  Algorithm algorithm;
  double seconds;
  double busiest_s;  // for which the busiest link is busy

  bool operator==(const SimulatedTime&) const = default;
};
/// It has to gain so much to be chosen by itself: what is predicted of a network is that it was
/// described well.
inline constexpr double kSynthesisGainMin = 1.05;

/// Must be equal on all ranks, bit for bit: take `l2_bytes` and measured costs from one rank.
struct PlanRequest {
  Collective collective = Collective::all_reduce;
  size_t bytes = 0;  // the whole vector: all ranks' parts together
  int ranks = 1;
  std::vector<int> hosts;  // host number of each rank; empty: every rank its own
  std::vector<int> racks;  // rack number of each rank; empty: all in one
  std::vector<int> rows;   // row number of each rank (topology/rows.h); empty: all in one
  int root = 0;
  CostModel cost{.intra = {}, .inter = {}, .reduce_s_per_byte = kReducePerByte};
  /// By ascending bytes. Lengths between two measured ones are interpolated. Shorter ones take the
  /// part that the cost model says, and longer ones what it adds, less what links hide of what CPUs
  /// do. Where nothing of reduce_scatter, or of all_gather, was measured, an algorithm takes so
  /// many times what is modelled as it does in the other one, else in all_reduce. What other
  /// algorithms and collectives take is corrected as the shortest measured calls need it; beside
  /// calls as short that were measured it counts half as much more, being a guess.
  std::vector<MeasuredTime> times = {};
  /// Where only others were measured with longer vectors, an algorithm was too slow for that: it
  /// stays as much slower than the fastest as it was.
  bool slow_ones_left_out = false;
  Algorithm forced = Algorithm::automatic;
  std::optional<MadeSchedule> made = {};  // empty: nothing is known of the network
  /// Where hosts are not alike: closed forms do not know which links messages share. Of calls as
  /// short as those that were measured only that the busiest link is busy for so long counts.
  std::vector<SimulatedTime> simulated = {};
  double ranks_per_cpu = 1;  // of the fullest host
  /// `cost` is of a description (simulate/network.h), and the simulator's rules hold: nothing
  /// collides, CPUs and links work side by side, and partners cost nothing.
  bool described = false;
  bool mapped = false;   // every peer's memory is mapped: receivers read the senders' memory
  bool spreads = false;  // long messages go over several adapters: only very short ones are whole
  size_t slice_bytes_max = 1 << 20;  // ROPEWALK_SLICE_BYTES
  size_t l2_bytes = 1 << 20;         // of a core
};

/// One algorithm as the planner saw it.
struct Candidate {
  Algorithm algorithm = Algorithm::ring;
  double predicted_us = 0;
  /// Of that, what its bytes take on a rank's link; 0 where ranks of a host share one.
  double link_us = 0;
  int partners = 0;    // of a rank, at most
  std::string reason;  // "14 rounds, sends 1.75 of the vector", or why it was passed over
  bool eligible = true;
};

/// What a ScheduleKey says of hosts, for an algorithm that goes by hosts, racks or rows.
std::vector<int> grouping_for(Algorithm algorithm, int ranks, const std::vector<int>& hosts,
                              const std::vector<int>& racks, const std::vector<int>& rows);

struct PlanDecision {
  Algorithm algorithm = Algorithm::ring;
  size_t slice_bytes = 64 << 10;  // a multiple of 64, unless slice_bytes_max is smaller
  double predicted_us = 0;
  std::vector<Candidate> candidates;  // eligible first, then fastest first

  ScheduleKey key(const PlanRequest& request) const {
    return {request.collective, algorithm, request.ranks, request.root,
            grouping_for(algorithm, request.ranks, request.hosts, request.racks, request.rows)};
  }
};

/// Why it is passed over in such a job, however long it takes; empty: it is not.
std::string passed_over(const PlanRequest& request, Algorithm algorithm);

/// Throws Error(unavailable) where no algorithm, or not the forced one, implements the collective;
/// the advice lists those that do.
PlanDecision choose(const PlanRequest& request);

}  // namespace ropewalk
