// The job as this process sees it, once every rank has joined. docs/protocol.md has every byte.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/agreement.h"
#include "bootstrap/config.h"
#include "bootstrap/monitor.h"
#include "bootstrap/sockets.h"
#include "ropewalk/communicator.h"
#include "topology/rows.h"

namespace ropewalk {

/// What a rank tells of its transports, by name; opaque to the bootstrap.
using TransportInfos = std::map<std::string, std::string, std::less<>>;

/// Ed25519: tells whether a rank has signed something.
using VerifyKey = std::array<std::byte, 32>;
/// What only the rank knows until it leaves, and the BLAKE2b-256 of it, which all know.
using LeaveToken = std::array<std::byte, 32>;
using LeaveCommitment = std::array<std::byte, 32>;

/// What every rank tells every other at joining. Fields that come from outside are bounded when
/// parsed (wire.h).
struct PeerRecord {
  int rank = -1;
  int64_t pid = 0;
  std::string host_name;  // for messages
  std::string host_id;    // equal exactly where shared memory can work: boot id, pid namespace, uid
  std::vector<std::string> addresses;  // "ip:port" of the rank's listener, most reachable first
  std::string transport = "auto";      // Config::transport
  std::string cpus;                    // that the rank may use: "0-3,8"
  TransportInfos transport_infos;
  Locality locality;
  VerifyKey verify_key = {};  // of what it says in this job's control tree
  LeaveCommitment leave_commitment = {};
};

class PeerTable;  // bootstrap/peer_table.h

/// Through what the ranks learn where rank 0 listens (bootstrap/discovery.h).
enum class DiscoveryMethod : uint8_t {
  coordinator,  // they have been told
  pmi,          // PMI_FD, PMI-1's or PMI-2's
  pmix,         // the launcher's PMIx server
  munge,        // at `coordinator` rank 0 tells it to ranks of the same user; and the job's key
};

/// Rank, size and coordinator as found, and where they came from ("ROPEWALK_RANK, ROPEWALK_SIZE",
/// "Slurm's SLURM_PROCID, SLURM_NTASKS").
struct JobIdentity {
  int rank = 0;
  int size = 1;             // 0: PMIx tells
  std::string coordinator;  // host:port; empty for size 1, beside a descriptor, where PMI tells
  int coordinator_fd = -1;  // rank 0: a listening socket; stays the caller's, `join` duplicates it
  std::string source;
  DiscoveryMethod discovery = DiscoveryMethod::coordinator;
  int pmi_fd = -1;
  std::string launcher_job = {};  // PMI_JOBID; Slurm's job and step
  /// Other launchers' variables, and why they do not count.
  std::vector<std::string> passed_over = {};
};

/// In words, as `ropewalk env` and `doctor` print it.
std::string describe(const JobIdentity& identity);

/// Explicit options, then ROPEWALK_*, torchrun (where TORCHELASTIC_RUN_ID shows that it runs: it is
/// the innermost launcher), Open MPI, PMIx, PMI, Slurm, PALS, Kubernetes, RANK and WORLD_SIZE
/// alone; then a job of one. Throws Error(invalid_argument) that names variables and values when
/// they contradict each other, are a part of what a launcher sets, or the rank is out of range, or
/// when a size is known but no coordinator.
JobIdentity find_identity(const Options& options, const Config& config, const Lookup& get);

namespace bootstrap {
class Control;
class EndedRanks;
class JobMonitor;
class Part;
class Parts;
class Predecessor;
class SocketBroker;

/// Where this rank can be reached at `coordinator` from elsewhere, only who has a key may join, and
/// one that cannot be guessed: throws Error(invalid_argument) where that is not so.
void check_key(const Config& config, const std::string& coordinator, bool is_local, int rank);
}  // namespace bootstrap

/// A process that waits to join the job while it runs.
struct Newcomer {
  int at_rank = 0;      // where it waits
  uint32_t number = 0;  // there
};

class World {
 public:
  /// Joins; blocks until all ranks have, at most config.time_to_join(). Starts one control thread
  /// that accepts connections, watches the other ranks and spreads failures; it sleeps when idle.
  /// A world of one opens no socket and starts no thread. Throws the same Error on every rank that
  /// has reached rank 0: mismatch (sizes, ranks), timeout (names the ranks that never came),
  /// refused (key, version), peer_lost. Looking up the coordinator's name may take longer, as long
  /// as the resolver does.
  /// A next epoch fails soon where a member of `predecessor` ends meanwhile; any join where one of
  /// `ended_ranks` does.
  static std::unique_ptr<World> join(const JobIdentity& identity, const Config& config,
                                     TransportInfos transport_infos,
                                     std::shared_ptr<bootstrap::Predecessor> predecessor = nullptr,
                                     bootstrap::EndedRanks* ended_ranks = nullptr);
  ~World();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const PeerRecord& record(int rank) const;
  /// Of all ranks.
  const PeerTable& records() const;
  Monitor& monitor();
  SocketSource& sockets();
  /// Announces an orderly leave after `calls`, and waits until every rank has left, a failure, or
  /// the timeout. The job fails where ranks leave after different calls. Called once.
  /// The control thread goes on relaying for others meanwhile. Never throws: after a failure it
  /// returns once the neighbours have been told, at the timeout it logs who still works. Destroying
  /// a world without it tells the others that this rank gave up.
  void leave(const CallsMade& calls = {});
  /// Before the end of a world that this rank cannot use: the others are told why it gives up.
  void give_up(const Error& why);

  /// The next agreement of `setup.members`, all of which call this (bootstrap/agreement.h). It goes
  /// on where the job has failed, and with those who are left. Blocks until its end, at
  /// `deadline_ns` (monotonic clock) at the latest. One at a time.
  bootstrap::AgreementEnd agree(bootstrap::Agreement::Setup setup, int64_t deadline_ns);
  /// An agreement has found that `members`, this rank among them, go on after the failure: they do
  /// so here, keep their numbers, and each calls this. The others have gone. Returns the monitor of
  /// that epoch, by its numbers; it shares the descriptor of `monitor`, which has not failed then.
  /// Throws Error. Requires that this world is not of one.
  std::shared_ptr<Monitor> renew(std::vector<int> members);
  /// Of the epoch that lives, from then on where it has failed.
  std::shared_ptr<Monitor> epoch_monitor();
  /// How many epochs have been followed by another here.
  uint32_t epoch() const;
  /// Until this world ends.
  void keep(std::shared_ptr<void> object);
  /// Tells those who join the next epoch here who has ended; null: nobody any more.
  void set_successor(std::shared_ptr<bootstrap::Predecessor> successor);
  /// All who wait at this rank to join (bootstrap/newcomers.h); the others are told.
  void tell_newcomers(std::vector<uint32_t> numbers);
  /// All who wait, as far as this rank has heard, in the order of ranks and numbers.
  std::vector<Newcomer> newcomers() const;

  /// A part of the job: some of its ranks, this one among them, in this order. `number` is of no
  /// other part of any of them, ever, and not 0. Nothing of it may be told before all have added
  /// it. It ends before the world.
  std::shared_ptr<bootstrap::Part> add_part(uint32_t number, std::vector<int> members);
  void remove_part(bootstrap::Part& part);

 private:
  World(int rank, int size, const Config& config);

  const int rank_, size_;
  const std::unique_ptr<bootstrap::JobMonitor> monitor_;
  const std::unique_ptr<bootstrap::Parts> parts_;
  const std::unique_ptr<bootstrap::SocketBroker> socket_broker_;
  std::unique_ptr<PeerTable> alone_;  // in a world of one
  mutable std::mutex newcomers_mutex_;
  std::vector<Newcomer> newcomers_here_;  // of a world of one; guarded by newcomers_mutex_
  std::vector<std::shared_ptr<void>> kept_;
  std::unique_ptr<bootstrap::Control> control_;  // else; last: its thread uses the others
};

}  // namespace ropewalk
