// How a rank joins a job that runs: what it does, and what those do that are in the job.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/config.h"
#include "bootstrap/dialer.h"
#include "bootstrap/frame_stream.h"
#include "bootstrap/predecessor.h"
#include "bootstrap/world.h"

namespace ropewalk::bootstrap {

/// Lets newcomers wait, in a thread of its own, and tells the ranks of the job how many. It goes
/// from one epoch to the next with the process, so that nobody who waits has to come again. It
/// listens at those of the coordinator's addresses that are of this host, where the process is the
/// first of the job there. Thread-safe.
class NewcomerListener {
 public:
  /// `coordinator`: as ROPEWALK_COORDINATOR. `inherited`: listens there already; or empty. `key`:
  /// of the job's first epoch. Throws Error.
  NewcomerListener(const std::string& coordinator, UniqueFd inherited, const Secret& key,
                   const Config& config);
  ~NewcomerListener();

  /// Tells the ranks of `world` from now on. `is_first`: of the ranks of its host.
  void serve(const std::shared_ptr<World>& world, bool is_first);
  /// To the newcomer that waits here under that number. Until `forget_admitted` the end of its
  /// process is told to `predecessor`; at once where it has ended already.
  void admit(uint32_t number, Admission admission, std::shared_ptr<Predecessor> predecessor);
  /// They have joined, or come again.
  void forget_admitted();

 private:
  struct Waiting {
    uint32_t number;
    FrameStream stream;
  };
  struct Admitted {
    uint32_t number;
    Admission admission;
    std::shared_ptr<Predecessor> predecessor;
    std::optional<FrameStream> stream;  // once that was sent
  };

  void run();
  void listen_where_missing(int64_t now_ns);
  void take(AuthenticatedSocket& incoming);
  void advance_waiting(int64_t now_ns);
  void send_admissions();
  void tell_world();

  const std::vector<Endpoint> coordinators_;
  const std::string socket_ifname_;
  const std::chrono::nanoseconds link_timeout_;
  const MonotonicClock clock_;
  PollSet set_;
  bool listens_ = false;
  Acceptor acceptor_;
  int64_t listen_at_ns_ = 0;  // tries to
  int64_t beat_at_ns_ = 0;
  uint32_t last_number_ = 0;
  std::list<Waiting> waiting_;

  Event wake_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::weak_ptr<World> world_;    // guarded by mutex_
  bool is_told_ = true;           // guarded by mutex_: world_ knows who waits
  bool may_listen_ = false;       // guarded by mutex_
  std::list<Admitted> admitted_;  // guarded by mutex_

  std::thread thread_;  // last: it uses all of the above
};

/// So long a process with ROPEWALK_JOIN_RUNNING=auto looks for a job that runs: where a member was
/// lost another may listen only once it has noticed.
inline constexpr auto kLookForJob = std::chrono::seconds(2);

/// A newcomer's. One thread.
class AdmissionRequest {
 public:
  /// Throws Error(invalid_argument) where `coordinator` is no list of addresses.
  AdmissionRequest(std::string coordinator, const Config& config);
  /// Asks whether a job runs: at each of the coordinator's addresses once, however long they take,
  /// then until one says so, or that the job begins, or `limit` has passed. Throws Error(aborted).
  bool finds_job(std::chrono::nanoseconds limit);
  /// Blocks until the members of the job admit this process, for as long as it takes them. Called
  /// again where joining has failed. Throws Error(timeout) once none of them has listened at the
  /// coordinator's addresses for config.time_to_join(), or config.admission_timeout has passed
  /// since this was made; Error(aborted) once config.stop is asked for; Error(refused).
  /// With config.join_if_running: nothing once the member at which it waits is gone, and no other
  /// is found: then the job has ended, and may begin anew.
  std::optional<Admission> wait();

 private:
  std::unique_ptr<Dialer> dial(std::string& why) const;
  void connect();
  void take_stream(Dialer& dialer);
  void sleep(PollSet& set, int64_t until_ns) const;
  std::string what_it_waits_for() const;

  const std::string coordinator_;
  const Config config_;
  const MonotonicClock clock_;
  const int64_t begun_ns_ = clock_.now_ns();
  const StopEvent stop_;
  std::string listener_;               // the address of `stream_`'s other end
  std::optional<FrameStream> stream_;  // its end tells the member that this process has ended
  bool is_found_ = false;              // `stream_` was made by `finds_job`
};

}  // namespace ropewalk::bootstrap
