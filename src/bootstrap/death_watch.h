// Which ranks of this host have died, told by the kernel before it takes their memory down.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/host_agreements.h"
#include "bootstrap/peer_table.h"
#include "bootstrap/poll_set.h"
#include "bootstrap/world.h"
#include "memory/memfd.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {

/// When a process ends, whatever ends it, the kernel first marks the robust mutexes that its
/// threads hold, then frees its memory, some 100 ms or more for each GB, and only then closes its
/// sockets. So the control thread of each rank holds a robust mutex, as long as the rank has not
/// left, in a memory file that all ranks of the host map: that of the lowest of them.
///
/// A watch thread sleeps on the mutex of the next rank of the host, in a ring, that lives: the
/// kernel wakes one sleeper. That one wakes the watch threads of all others. Nothing polls.
///
/// Whoever hears of a failure may end at once, before it can tell. So a rank's slot there says
/// first of all which failure its rank knows: who finds it dead does not take it for the cause.
///
/// A rank that is stopped holds its mutex; a forked child holds none. Where no memory can be
/// shared, or the watch threads do not get to run, sockets tell, later.
///
/// Threads: one, the control thread, except for the watch thread inside and `note_failure`.
class DeathWatch {
 public:
  /// `size` of the job.
  explicit DeathWatch(int size);
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;
  ~DeathWatch();

  /// The name of the info in a record that has address().
  static constexpr std::string_view kInfo = "deaths";
  /// Where the others find this rank's memory file: "FD:INODE". Empty where it has none.
  std::string address() const;
  /// Takes this rank's mutex. `table` is complete. The calling thread calls `leave` before it ends.
  void enter(const PeerTable& table, int rank);
  /// All ranks have entered: the watch begins.
  void begin();
  /// This rank has not died: it ends in order, and watches no more. Harmless when repeated.
  void leave();

  /// Readable when there are deaths to take.
  int event_fd() const { return event_.fd(); }
  /// Ranks that have died since the last call.
  std::vector<int> take_deaths();
  /// The job has failed, as this rank knows, and nobody has heard it from this rank yet. Any
  /// thread.
  void note_failure(const Failure& failure, uint32_t epoch);
  /// What a rank that has ended knew in that epoch, without texts; null: of no failure, or its
  /// thread still holds its mutex, or it is none of this host.
  std::optional<Failure> failure_known_to(int rank, uint32_t epoch) const;
  /// From `begin` on, where all ranks of the job are on this host and share its memory: the same on
  /// all of them. Else null.
  HostAgreements* agreements() { return agreements_ ? &*agreements_ : nullptr; }

 private:
  struct Slot;
  Slot& slot(int rank) const;
  uint32_t* word(int rank) const;
  std::atomic_ref<uint32_t> state(int rank) const { return std::atomic_ref(*word(rank)); }
  bool is_held_by(int rank) const;
  size_t bytes() const;
  bool map(const PeerRecord& owner);
  bool take_mutex();
  void watch();
  int find_charge();
  bool prepare_wait(int charge, uint32_t& value);
  void note_deaths();
  void wake_all();
  void wake(int rank) const;

  const int size_;
  UniqueFd file_;  // until all have mapped the one that is used
  SharedMapping mapping_;
  int rank_ = -1;                    // -1: has not entered, or has left
  std::atomic<Slot*> own_{nullptr};  // from `enter` on
  std::vector<int> others_;          // of this host, in the order of the ring from this rank on
  std::optional<HostAgreements> agreements_;
  Event event_;
  std::mutex mutex_;
  std::vector<int> deaths_;  // guarded by mutex_

  // The watch thread's, which allocates nothing. By rank.
  std::vector<bool> noted_;   // deaths
  std::vector<bool> passed_;  // deaths that this rank has waked the others for
  bool has_passed_ = false;   // some
  std::atomic<int> charge_{-1};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ropewalk::bootstrap
