// What the project knows of each algorithm, in one place: its builder, its bound, its predicted
// cost. To add one: a file here that defines `NAME_algorithm()`, and NAME in ROPEWALK_ALGORITHMS
// (ropewalk/types.h). `ropewalk verify` then proves it.
#pragma once

#include "schedule/cost.h"
#include "schedule/schedule.h"

namespace ropewalk {

/// Which ranks share a host: hosts in the order in which their first rank appears, members in rank
/// order.
struct Hosts {
  std::vector<std::vector<int>> members;  // ranks by host
  std::vector<int> host_of;               // by rank: index into `members`
  std::vector<int> place_of;              // by rank: index into its host's members

  int ranks() const { return static_cast<int>(host_of.size()); }
  int count() const { return static_cast<int>(members.size()); }
  int size_min() const;
  int size_max() const;
};

/// `host_numbers` by rank, any numbers; empty: every rank its own host.
Hosts hosts_of(const std::vector<int>& host_numbers, int ranks);

/// What ScheduleKey::hosts means to an algorithm.
enum class GroupedBy : uint8_t {
  nothing,  // it does not depend on it
  hosts,
  racks,  // groups of hosts that slow links part
  rows,   // groups of ranks of one host: see topology/rows.h
};

/// Which other ranks do the same as rank 0, or another of the first `unit`: with ranks renamed, and
/// blocks, their steps are those. What lets the simulator run one rank for many
/// (simulate/symmetry.h).
struct Symmetry {
  enum class Kind : uint8_t {
    none,
    shift,         // rank r + k does what r does, to ranks that are k further on (modulo n)
    exclusive_or,  // rank r ^ k; n is a power of two
  };
  Kind kind = Kind::none;
  int unit = 1;  // for every multiple k of this, which divides n
};

/// All functions are pure, and for two ranks or more.
struct AlgorithmDescriptor {
  /// Those that it implements, for any number of ranks and any root.
  std::vector<Collective> collectives;
  Schedule (*build)(const ScheduleKey& key, int rank);
  Bound (*bound)(const ScheduleKey& key);
  /// The closed form of the cost model, in seconds; of an all_reduce in a described network
  /// (CostTerms::described) another one, which the simulator meets within some percent. Only + - *
  /// / and comparisons: the result must be the same on every rank.
  double (*predict_s)(const CostTerms& terms, Collective collective);
  /// Into how many blocks the vector is cut.
  int (*blocks)(Collective collective, const Hosts& hosts) = [](Collective, const Hosts& hosts) {
    return hosts.ranks();
  };
  /// The most ranks that any rank exchanges messages with.
  int (*partners)(Collective collective, const Hosts& hosts) = [](Collective, const Hosts& hosts) {
    return hosts.ranks() - 1;
  };
  /// How many messages a stream must hold for ranks that run their steps strictly in list order.
  uint32_t list_order_credits = 5;
  Symmetry (*symmetry)(Collective collective, const Hosts& hosts) = [](Collective, const Hosts&) {
    return Symmetry();
  };
  /// What is said of hosts here is meant of these groups.
  GroupedBy grouped_by = GroupedBy::nothing;
  /// Its schedules are made of a description of the network (synthesize/synthesize.h), which a key
  /// does not have: there is nothing to build, to bound or to predict here.
  bool needs_network = false;
  /// Ranks hand on parts of others, whose lengths they must know: an all_to_all without counts.
  bool needs_equal_parts = false;
  /// How much a rank holds of parts that it hands on, in vectors.
  double held = 0;
  /// Why the planner passes it over; empty where it does not.
  std::string (*passed_over)(const Hosts& hosts) = [](const Hosts&) { return std::string(); };
};

/// `algorithm` is not `automatic`.
const AlgorithmDescriptor& descriptor_of(Algorithm algorithm);

/// Of `key.algorithm`; nothing for one rank.
Bound bound_of(const ScheduleKey& key);

/// So many partners cost little beside what they bring.
inline constexpr int kPartnersFew = 16;
/// Of algorithms over networks those with at most so many partners are chosen, where there are any:
/// a link over TCP is an open file, and a process may not be allowed more than 1,024.
inline constexpr int kPartnersMax = 200;
/// And of those that hand on parts of others those that hold no more of them at a time.
inline constexpr double kHeldBytesMax = 128 << 20;

// One per algorithm, each in a file of its own.
#define ROPEWALK_DECLARE_ALGORITHM(name) AlgorithmDescriptor name##_algorithm();
ROPEWALK_ALGORITHMS(ROPEWALK_DECLARE_ALGORITHM)
#undef ROPEWALK_DECLARE_ALGORITHM

}  // namespace ropewalk
