// The job that this process has joined, and the transports that reach its other ranks: what a
// communicator is built upon.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/world.h"
#include "ropewalk/communicator.h"
#include "topology/rows.h"
#include "transport_choice/transport_choice.h"

namespace ropewalk {

/// Which option overrides which variable, said once for both ways: calls `visit(option, setting)`
/// for each pair. Where the job is to be found is not among them: `find_identity`
/// (bootstrap/world.h) looks at more than options and variables.
template <class AnyOptions, class AnyConfig, class Visit>
void visit_settings(AnyOptions& options, AnyConfig& config, Visit visit) {
  visit(options.key, config.job_key);
  visit(options.transport, config.transport);
  visit(options.secure, config.secure);
  visit(options.timeout, config.timeout);
  visit(options.join_timeout, config.join_timeout);
  visit(options.progress_thread, config.progress_thread);
  visit(options.progress_cpu, config.progress_cpu);
  visit(options.elastic, config.elastic);
  visit(options.tie_breaker, config.tie_breaker);
  visit(options.quorum_min, config.quorum_min);
  visit(options.join_running, config.join_running);
  visit(options.admission_timeout, config.admission_timeout);
  visit(options.stop, config.stop);
}
/// The environment's, where the options do not say otherwise. Throws Error.
Config merged_config(const Options& options);

/// Threads: one at a time, except for `monitor()`. What registers memory or uses a transport must
/// end before the job.
class Job {
 public:
  /// Joins the job that `options` and the environment name, and chooses transports. Throws Error.
  /// Of a next epoch: with `predecessor`, as World's.
  explicit Job(const Options& options,
               std::shared_ptr<bootstrap::Predecessor> predecessor = nullptr);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Config& config() const { return config_; }
  Monitor& monitor() const { return world_->monitor(); }
  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  /// True where the ranks of this host cannot each have a CPU: by affinity, or by cgroup quota.
  bool shares_cpus() const { return shares_cpus_; }
  /// Of the host where that is most; at least 1.
  double ranks_per_cpu() const { return ranks_per_cpu_; }
  /// By rank: number of its host.
  const std::vector<int>& hosts() const { return hosts_; }
  /// Of all ranks; of these.
  Placement placement() const;
  Placement placement(const std::vector<int>& ranks) const;

  /// By rank: name of its host.
  std::vector<std::string> host_names() const;
  /// Whether rank 0 wants costs measured, and may have a tuning profile. Equal on all ranks.
  bool probes_costs() const { return rank_zero_says(kProbe); }
  bool may_have_tuning() const { return rank_zero_says(kTuning); }
  /// Whether rank 0 has a description of the network.
  bool may_know_network() const { return rank_zero_says(kNetwork); }

  const TransportChoice& choice() const { return choice_; }
  const std::vector<Transport*>& transports() const { return transports_; }
  /// By peer: index into transports().
  const std::vector<int>& route() const { return route_; }

  const std::shared_ptr<World>& world() const { return world_; }
  /// What `make` returns: something that this rank cannot do without once it has joined. Where it
  /// throws, all ranks are told why this one gives up.
  template <class Make>
  auto set_up(Make make) const {
    try {
      return make();
    } catch (const Error& error) {
      world_->give_up(error);
      throw;
    }
  }
  /// Where rank 0 has listened: host:port, or several with commas between; or empty.
  const std::string& coordinator() const { return coordinator_; }
  /// The process of `peer`, where that is a rank of this host.
  std::optional<int64_t> local_process(int peer) const;

  /// As World's.
  std::shared_ptr<bootstrap::Part> add_part(uint32_t number, const std::vector<int>& members) {
    return world_->add_part(number, members);
  }
  void remove_part(bootstrap::Part& part) { world_->remove_part(part); }
  /// Leaves in order after `calls`, and calls `progress` until all have: peers may still wait for
  /// bytes in this rank's queues. It says whether it has moved any, or has any left. At once where
  /// the job has failed.
  void leave(const CallsMade& calls, const std::function<bool()>& progress);

 private:
  /// What rank 0 tells in its record, beside what it tells of transports: words of this.
  static constexpr std::string_view kCosts = "costs", kProbe = "probe", kTuning = "tuning",
                                    kNetwork = "network";
  bool rank_zero_says(std::string_view word) const;

  void join_world();
  void make_transports(const PeerTable& ranks);
  std::unique_ptr<Transport> make(const TransportProvider& provider, const PeerTable& ranks);
  std::unique_ptr<Transport> map_neighbours(const TransportProvider& provider,
                                            const PeerTable& ranks);
  void check_slices() const;
  bool is_local(int peer) const {
    return hosts_[static_cast<size_t>(peer)] == hosts_[static_cast<size_t>(rank())];
  }

  Config config_;
  std::vector<TransportOffer> offers_;  // until the transports are made
  std::unique_ptr<Transport> within_;   // null where no memory is shared
  std::shared_ptr<World> world_;
  std::string coordinator_;
  std::unique_ptr<Transport> between_;  // null where all is shared memory
  TransportChoice choice_;
  std::vector<Transport*> transports_;
  std::vector<int> route_;
  std::vector<int> hosts_;
  std::vector<Locality> localities_;  // by rank
  double ranks_per_cpu_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  bool shares_cpus_ = false;
};

}  // namespace ropewalk
