#include "tools/bench/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/log.h"
#include "bootstrap/config.h"
#include "communicator/cost_probe.h"
#include "job/tuning.h"
#include "network/job_hosts.h"
#include "schedule/algorithm.h"
#include "tools/bench/job.h"
#include "tools/bench/time_summary.h"
#include "tools/tune/profile_file.h"
#include "tools/tune/tune.h"
#include "topology/topology.h"

namespace ropewalk::tools {
namespace {

constexpr double kBudgetUs = 100e3;  // of an algorithm with one size
constexpr int kIterationsMin = 3, kIterationsMax = 300;
/// So many times slower than the best where calls take this long, and messages count no more, an
/// algorithm is not measured with longer vectors.
constexpr double kTooSlow = 3, kLongUs = 1000;
/// Links are measured so often: another process may have held one up, which makes it slower.
constexpr int kLinkProbes = 5;
/// Of what the default would lose: less is noise.
constexpr double kWorthTelling = 0.05;
/// For ranks that have no part in a job that is being measured.
constexpr auto kWaitMax = std::chrono::hours(24);

std::string size_text(size_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{}M", bytes >> 20);
  return bytes >= 1 << 10 && bytes % (1 << 10) == 0 ? fmt::format("{}K", bytes >> 10)
                                                    : fmt::format("{}", bytes);
}

/// What each rank says, by rank.
std::vector<std::string> gather_words(Communicator& comm, const std::string& own) {
  std::array<char, 256> mine{};
  own.copy(mine.data(), mine.size() - 1);
  std::vector<char> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.all_gather(mine, all);
  std::vector<std::string> words;
  for (int rank = 0; rank < comm.size(); ++rank)
    words.emplace_back(all.data() + static_cast<size_t>(rank) * mine.size());
  return words;
}

/// The hosts in rank order; several may have one name. Throws where the ranks of one do not stand
/// beside each other. Collective.
std::vector<TuningProfile::Host> gather_hosts(Communicator& comm) {
  const std::vector<std::string> names = gather_words(comm, host_name());
  const std::vector<std::string> identities = gather_words(comm, host_identity());
  std::vector<TuningProfile::Host> hosts;
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (rank > 0 && identities[rank] == identities[rank - 1]) {
      ++hosts.back().ranks;
    } else {
      hosts.push_back({names[rank], 1});
    }
  }
  const std::set<std::string> distinct(identities.begin(), identities.end());
  if (distinct.size() == hosts.size()) return hosts;
  throw Error(ErrorCode::invalid_argument, "tune", "the ranks of a host do not follow each other",
              "start them so: --hosts alpha:2,beta:2");
}

std::vector<int> numbers_of(const std::vector<TuningProfile::Host>& hosts) {
  std::vector<int> numbers;
  for (size_t host = 0; host < hosts.size(); ++host)
    numbers.insert(numbers.end(), static_cast<size_t>(hosts[host].ranks), static_cast<int>(host));
  return numbers;
}

/// Of all calls that are measured: tells of each as it is.
class Counter {
 public:
  /// `prints`: on one rank.
  Counter(size_t total, bool prints) : total_(total), prints_(prints) {}
  bool prints() const { return prints_; }
  void tell(const std::string& text) {
    ++done_;
    if (prints_) print(fmt::format("[{} of {}] {}\n", done_, total_, text));
  }
  /// What need not be measured.
  void skip() { ++done_; }

 private:
  const size_t total_;
  const bool prints_;
  size_t done_ = 0;
};

/// What one job takes: every collective, size and algorithm.
class JobTuner {
 public:
  /// `hosts`, `racks`: number of each rank's. `counter` prints, on one rank; it outlives this.
  JobTuner(Communicator& comm, const TuneOptions& options, const std::vector<int>& hosts,
           const std::vector<int>& racks, Counter& counter)
      : comm_(comm),
        options_(options),
        hosts_(hosts),
        racks_(racks),
        rows_(is_one_host_with_rows(hosts) ? rows_of(std::vector<Locality>(hosts.size()))
                                           : std::vector<int>()),
        counter_(counter),
        barrier_(plan_barrier(comm)) {}

  std::vector<MeasuredTime> run() {
    for (const Collective collective : options_.collectives) {
      BenchOptions most = options_of(collective);
      most.sizes = options_.sizes;
      check_memory_of_all(comm_, most);
    }
    for (const Collective collective : options_.collectives) tune(collective);
    std::ranges::stable_sort(times_, {}, &MeasuredTime::bytes);
    return times_;
  }
  /// After `run`, where it prints: what calls take without these times, where others are faster.
  /// Of a schedule that was made for the network no time is saved: it was measured to compare.
  void tell_changes() const {
    std::string changes, made_slower;
    for (const auto& [call, chosen] : chosen_) {
      const auto& [collective, bytes] = call;
      const MeasuredTime* best = nullptr;
      const MeasuredTime* now = nullptr;
      for (const MeasuredTime& time : times_) {
        if (time.collective != collective || time.bytes != bytes) continue;
        if (best == nullptr || time.seconds < best->seconds) best = &time;
        if (time.algorithm == chosen) now = &time;
      }
      if (const auto made = made_.find(call); made != made_.end()) now = &made->second;
      if (now == nullptr || best->seconds > (1 - kWorthTelling) * now->seconds) continue;
      (chosen == Algorithm::synthesized ? made_slower : changes) += fmt::format(
          "  {} of {}: {} instead of {}, {:.4g} us instead of {:.4g}: {:.0f} % less\n",
          name_of(collective), size_text(bytes), name_of(best->algorithm), name_of(chosen),
          best->seconds * 1e6, now->seconds * 1e6, 100 * (1 - best->seconds / now->seconds));
    }
    if (!changes.empty()) print("\nWhat the profile changes:\n" + changes);
    if (!made_slower.empty())
      print(
          "\nWhat would be faster than the schedules that are made for the network as it is "
          "described (ROPEWALK_NETWORK):\n" +
          made_slower);
    if ((changes + made_slower).empty()) print("\nThe defaults are the fastest, within 5 %.\n");
  }

 private:
  static BenchOptions options_of(Collective collective) {
    BenchOptions options;
    options.kind.collective = collective;
    options.in_place = options.kind.in_place_by_default();
    options.warmup = 1;
    return options;
  }

  void tune(Collective collective) {
    BenchOptions options = options_of(collective);
    std::vector<Algorithm> left;
    const bool one_host = std::ranges::adjacent_find(hosts_, std::not_equal_to()) == hosts_.end();
    for (const Algorithm algorithm : algorithms_for(collective)) {
      const AlgorithmDescriptor& descriptor = descriptor_of(algorithm);
      const Hosts groups =
          hosts_of(grouping_for(algorithm, comm_.size(), hosts_, racks_, rows_), comm_.size());
      // Those that the planner would not take are not measured.
      const bool has_few = one_host || descriptor.partners(collective, groups) <= kPartnersMax;
      if (has_few && descriptor.passed_over(groups).empty()) left.push_back(algorithm);
    }
    size_t bytes_before = 0;
    for (const size_t size : options_.sizes) {
      options.algorithm = Algorithm::automatic;
      options.iterations = 1;
      const BenchResult first = measure_size(comm_, options, barrier_, size);
      if (first.bytes == bytes_before) {  // at least an element a rank
        counter_.skip();
        continue;
      }
      bytes_before = first.bytes;
      chosen_[{collective, first.bytes}] = first.algorithm;
      options.iterations = 0;
      options.budget_us = kBudgetUs;
      options.iterations_min = kIterationsMin;
      options.iterations_max = kIterationsMax;
      measure_each(options, size, left);
    }
  }

  void measure_each(BenchOptions& options, size_t size, std::vector<Algorithm>& left) {
    std::map<Algorithm, double> us;
    double best_us = 1e300;
    std::string line;
    for (const Algorithm algorithm : left) {
      const BenchResult result = measure(options, size, algorithm);
      us[algorithm] = result.median_us;
      best_us = std::min(best_us, result.median_us);
      times_.push_back({options.kind.collective, algorithm, result.bytes, result.median_us * 1e-6});
      line += fmt::format("{} {} {:.4g}", line.empty() ? "" : ",", name_of(algorithm),
                          result.median_us);
    }
    line += measure_made(options, size);
    counter_.tell(fmt::format("{} of {}, {} ranks:{} us", name_of(options.kind.collective),
                              size_text(size), comm_.size(), line));
    std::erase_if(left,
                  [&](Algorithm one) { return us[one] > std::max(kLongUs, kTooSlow * best_us); });
  }

  /// Where the default is a schedule that was made for the network, whatever its length.
  std::string measure_made(BenchOptions& options, size_t size) {
    const std::pair call(options.kind.collective, times_.back().bytes);
    if (chosen_.at(call) != Algorithm::synthesized) return "";
    const BenchResult result = measure(options, size, Algorithm::automatic);
    made_.insert_or_assign(
        call, MeasuredTime{call.first, result.algorithm, result.bytes, result.median_us * 1e-6});
    return fmt::format(", {} {:.4g}", name_of(result.algorithm), result.median_us);
  }

  BenchResult measure(BenchOptions& options, size_t size, Algorithm algorithm) {
    options.algorithm = algorithm;
    const BenchResult result = measure_size(comm_, options, barrier_, size);
    if (result.wrong > 0)
      throw Error(ErrorCode::protocol, "tune",
                  fmt::format("{} by {} gave {} wrong elements", name_of(options.kind.collective),
                              name_of(result.algorithm), result.wrong),
                  "report this, with the output of `ropewalk doctor`");
    return result;
  }

  Communicator& comm_;
  const TuneOptions& options_;
  const std::vector<int> hosts_, racks_, rows_;
  Counter& counter_;
  Plan barrier_;
  std::vector<MeasuredTime> times_;
  std::map<std::pair<Collective, size_t>, Algorithm> chosen_;   // by the planner
  std::map<std::pair<Collective, size_t>, MeasuredTime> made_;  // where that is synthesized
};

/// The least of what several probes find; racks only where all find them.
Costs measure_between_hosts(Communicator& comm, const std::vector<int>& hosts) {
  Costs least;
  double across = 0;
  for (int i = 0; i < kLinkProbes; ++i) {
    const Costs found = measure_costs(comm, hosts, Costs());
    if (i == 0) least = found;
    LinkCost& link = least.model.inter;
    const LinkCost& one = found.model.inter;
    link = {std::min(link.latency_s, one.latency_s), std::min(link.overhead_s, one.overhead_s),
            std::min(link.s_per_byte, one.s_per_byte)};
    least.model.racks_s_per_byte =
        std::min(least.model.racks_s_per_byte, found.model.racks_s_per_byte);
    if (found.racks != least.racks) least.racks.clear();
    across = std::max(across, found.model.racks_s_per_byte);
  }
  // Somewhere there may be a slow link: every ring would wait for it.
  if (least.racks.empty())
    least.model.inter.s_per_byte = std::max(least.model.inter.s_per_byte, across);
  return least;
}

std::vector<int> jobs_of(const TuneOptions& options, int ranks) {
  std::vector<int> jobs = options.jobs;
  if (jobs.empty()) {
    for (int job = 2; job < ranks; job *= 2) jobs.push_back(job);
    jobs.push_back(ranks);
  }
  for (const int job : jobs)
    if (job < 2 || job > ranks)
      throw Error(ErrorCode::invalid_argument, "tune",
                  fmt::format("a job of {} ranks cannot be measured with {}", job, ranks),
                  "choose --jobs from 2 to the number of ranks");
  return jobs;
}

/// Which is found by the names of these hosts, in whatever order another job has them. Nothing
/// where there is none, or it is of other hosts, of which a warning tells.
std::optional<Network> network_by_names(const std::vector<TuningProfile::Host>& hosts) {
  const auto described =
      variable([](const char* name) { return std::getenv(name); }, "ROPEWALK_NETWORK");
  if (!described || described->empty()) return {};
  std::vector<std::string> names;  // by rank
  for (const TuningProfile::Host& host : hosts)
    names.insert(names.end(), static_cast<size_t>(host.ranks), host.name);
  try {
    Network network = network_of_job(find_network(*described, 0), numbers_of(hosts), names);
    std::set<std::string> distinct(names.begin(), names.end());
    if (distinct.size() == hosts.size())
      for (size_t i = 0; i < hosts.size(); ++i) network.hosts[i].name = hosts[i].name;
    return parse_network(text_of(network));  // as whoever reads the profile will
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    log(LogLevel::warn, 0, "the profile is without the description of the network: {}",
        error.failure().reason);
    return {};
  }
}

void tell_links(const Costs& found, const Communicator& comm, TuningProfile& profile, bool prints) {
  const LinkCost& link = found.model.inter;
  if (link.s_per_byte == 0) return;  // what each transfer costs hides it
  profile.between_hosts = {network_of(comm.transport()), link};
  if (prints) print(fmt::format("between hosts: {}\n", text_of(link)));
  if (found.racks.empty()) return;
  profile.racks_s_per_byte = found.model.racks_s_per_byte;
  size_t rank = 0;
  for (TuningProfile::Host& host : profile.hosts) {
    host.rack = found.racks[rank];
    rank += static_cast<size_t>(host.ranks);
  }
  if (prints)
    print(fmt::format("between {} racks: {:.4g} MB/s\n", std::ranges::max(found.racks) + 1,
                      1e-6 / profile.racks_s_per_byte));
}

}  // namespace

int run_tune_rank(const TuneOptions& options) {
  setenv("ROPEWALK_TUNING", std::string(kNoTuning).c_str(), 1);
  const auto comm = join_job("tune", options.ranks, join_options(options.transport, false, {}));
  const bool prints = comm->rank() == 0;
  const std::vector<int> jobs = jobs_of(options, comm->size());
  TuningProfile profile;
  profile.hosts = gather_hosts(*comm);
  const std::string path =
      options.output.empty() ? saved_tuning_path(profile.hosts) : options.output;
  std::optional<ProfileFile> file;
  if (prints) file.emplace(path);
  const std::vector<int> hosts = numbers_of(profile.hosts);
  if (prints) profile.network = network_by_names(profile.hosts);
  if (prints)
    print(fmt::format("{} ranks on {} hosts, {}\n", comm->size(), profile.hosts.size(),
                      comm->transport()));
  Costs found;
  if (profile.hosts.size() > 1) {
    found = measure_between_hosts(*comm, hosts);
    tell_links(found, *comm, profile, prints);
  }
  Plan together = plan_barrier(*comm);
  std::optional<JobTuner> whole;
  Counter counter(jobs.size() * options.collectives.size() * options.sizes.size(), prints);
  for (const int ranks : jobs) {
    const bool all = ranks == comm->size();
    const auto part = all ? nullptr : comm->split(comm->rank() < ranks ? 0 : -1);
    if (all || part != nullptr) {
      const std::vector<int> placed(hosts.begin(), hosts.begin() + ranks);
      Communicator& job = all ? *comm : *part;
      std::vector<int> racks(found.racks.begin(),
                             found.racks.empty() ? found.racks.end() : found.racks.begin() + ranks);
      JobTuner tuner(job, options, placed, racks, counter);
      profile.jobs.push_back({ranks, job.transport(), tuner.run()});
      if (prints) file->save_part(profile);
      if (all) whole.emplace(std::move(tuner));
    }
    together.start();
    together.wait(kWaitMax);
  }
  if (!prints) return 0;
  if (whole) whole->tell_changes();
  file->save(profile);
  print(fmt::format(
      "\nSaved as {}; jobs on these hosts {}.\n", path,
      options.output.empty() ? "use it by themselves" : "use it with ROPEWALK_TUNING=" + path));
  return 0;
}

}  // namespace ropewalk::tools
