// Tuning profiles: what `ropewalk tune` has measured of jobs on some hosts, as JSON. docs/tuning.md
// has the format.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/costs.h"
#include "network/network.h"

namespace ropewalk {

struct TuningProfile {
  struct Host {
    std::string name;
    int ranks = 1;
    int rack = 0;
  };
  /// Of the job of the first `ranks` ranks, counted through the hosts.
  struct Calls {
    int ranks = 1;
    std::string transport;            // as Communicator::transport says
    std::vector<MeasuredTime> times;  // by ascending bytes
  };

  struct Link {
    std::string transport;
    LinkCost cost;
  };

  std::vector<Host> hosts;            // empty: of any hosts
  std::optional<Link> between_hosts;  // where there are several; of one rack, if in several racks
  double racks_s_per_byte = 0;        // between racks; 0: there is one
  std::vector<Calls> jobs;
  std::optional<Network> network = {};  // as it was described when this was measured
};

inline constexpr size_t kTuningBytesMax = 1 << 20;

/// Throws Error(invalid_argument) that says where the text is wrong.
TuningProfile parse_tuning(std::string_view text);
std::string text_of(const TuningProfile& profile);

/// The job that a profile is to serve.
struct TunedJob {
  std::vector<std::string> host_names;  // by rank; empty: any
  std::vector<int> hosts;               // by rank: number of its host; at least one
  std::string transport;                // as Communicator::transport says
};

/// The transport between hosts: "tcp" of "shm+tcp".
std::string network_of(const std::string& transport);
/// Why the profile says nothing of the job; empty where it does.
std::string why_not_for(const TuningProfile& profile, const TunedJob& job);
/// Puts what it says into `costs`. A pure function: equal on all ranks.
void apply_tuning(const TuningProfile& profile, const TunedJob& job, Costs& costs);

/// Throws Error(invalid_argument).
std::string read_tuning(const std::string& path);
/// Where `ropewalk tune` saves the profile of these hosts; empty where the user has no home.
std::string saved_tuning_path(const std::vector<TuningProfile::Host>& hosts);
/// Whether `find_tuning` may find one: ROPEWALK_TUNING names a file, or some were saved.
bool may_have_tuning(const std::string& setting);
/// The text of the profile for the job: of the file that ROPEWALK_TUNING names, else of a saved one
/// whose hosts are the job's, or more: the newest that has times of such a job, else the newest
/// that knows its links. Empty where there is none, or a warning said why the file does not serve.
std::string find_tuning(const std::string& setting, const TunedJob& job);
/// ROPEWALK_TUNING: no profile at all.
inline constexpr std::string_view kNoTuning = "none";

}  // namespace ropewalk
