#include "group.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

namespace ropewalk::pytorch {
namespace {

constexpr auto kCallsEndMax = std::chrono::seconds(5);
constexpr auto kLeaveMax = std::chrono::seconds(1);
constexpr auto kRetireMax = std::chrono::seconds(5);
// For threads whose calls have just failed. Python ends a thread that comes back to it too late,
// and where C++ is on its stack the process with it ("terminate called without an active
// exception").
constexpr auto kShutdownGrace = std::chrono::milliseconds(200);

/// What this process has joined, and leaves. Never destroyed: backends may outlive static objects.
struct Process {
  const OwnProcess own;

  std::mutex mutex;  // guards what follows
  std::vector<std::weak_ptr<Membership>> memberships;
  std::weak_ptr<Membership> in_default;  // of these
  std::string default_job;               // DefaultGroup::job
  std::vector<int64_t> culprits;         // of broken groups that were left

  /// Threads that leave a job, or do something else that is to be done before the end.
  std::mutex departing_mutex;  // guards what follows
  std::condition_variable changed;
  int departing = 0;

  std::vector<std::shared_ptr<Membership>> live_memberships() {
    std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<Membership>> live;
    for (const auto& one : memberships)
      if (auto membership = one.lock()) live.push_back(std::move(membership));
    return live;
  }
};

/// A forked child has one of its own.
Process& this_process() {
  static std::atomic<Process*> current{nullptr};
  Process* known = current;
  if (known != nullptr && !known->own.is_forked()) return *known;
  auto fresh = std::make_unique<Process>();
  return current.compare_exchange_strong(known, fresh.get()) ? *fresh.release() : *known;
}

}  // namespace

/// Ends what `end` has begun.
void Membership::depart(std::shared_ptr<Group> group, Departure departure) {
  Process& all = this_process();
  auto has_left = std::make_shared<bool>(false);
  std::unique_lock lock(all.departing_mutex);
  if (departure == Departure::retired)
    std::thread([&all, group, has_left] {
      std::unique_lock lock(all.departing_mutex);
      if (all.changed.wait_for(lock, kRetireMax, [&] { return *has_left; })) return;
      lock.unlock();
      group->comm->abort("it has gone on in another group");
    }).detach();
  std::thread([&all, group = std::move(group), has_left]() mutable {
    try {
      group->comm->leave();
    } catch (const Error& error) {  // nobody waits for this thread
      TORCH_WARN(error.what());
    }
    group.reset();
    std::lock_guard lock(all.departing_mutex);
    *has_left = true;
    --all.departing;
    all.changed.notify_all();
  }).detach();
  if (departure == Departure::awaited)
    all.changed.wait_for(lock, kLeaveMax, [&] { return *has_left; });
}

void OwnProcess::require(int rank, const char* operation) const {
  if (is_forked())
    C10_THROW_ERROR(DistBackendError, c10::str("rank ", rank, ": ", operation, ": process ",
                                               getpid(), " was forked from process ", process_,
                                               ", which is the rank; make calls there"));
}

std::shared_ptr<Membership> Membership::begin(std::unique_ptr<Communicator> joined,
                                              const std::string& default_job,
                                              std::shared_ptr<const Hooks> hooks) {
  auto fresh = std::make_shared<Membership>();
  auto calls = std::make_shared<OutstandingCalls>(*joined, std::move(hooks));
  fresh->parts_ = {std::make_shared<Group>(std::move(joined)), std::move(calls)};
  Process& all = this_process();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.memberships, [](const auto& one) { return one.expired(); });
  all.memberships.push_back(fresh);
  if (default_job.empty()) return fresh;
  all.in_default = fresh;
  all.default_job = default_job;
  return fresh;
}

DefaultGroup Membership::default_group() {
  Process& all = this_process();
  std::lock_guard lock(all.mutex);
  const auto membership = all.in_default.lock();
  return {membership ? membership->parts().group : nullptr, all.default_job};
}

Membership::~Membership() {
  if (process_.is_forked()) abandon(std::move(parts_));
}

Membership::Parts Membership::parts() const {
  if (process_.is_forked()) return {};
  std::lock_guard lock(mutex_);
  return parts_;
}

void Membership::leave(bool wait) {
  end(kCallsEndMax, "the process group was destroyed while calls were under way",
      wait ? Departure::awaited : Departure::in_background);
}

void Membership::retire() {
  end(std::chrono::milliseconds(0), "the process group was reconfigured while calls were under way",
      Departure::retired);
}

void Membership::end(std::chrono::milliseconds limit, const char* reason, Departure departure) {
  if (process_.is_forked()) return;
  Process& all = this_process();
  Parts left;
  {
    std::scoped_lock lock(mutex_, all.departing_mutex);
    left = std::exchange(parts_, {});
    if (!left.group) return;
    ++all.departing;
  }
  left.calls->stop(limit, [&comm = *left.group->comm, reason] { comm.abort(reason); });
  if (const auto culprit = left.group->comm->culprit_process()) {
    std::lock_guard lock(all.mutex);
    all.culprits.push_back(*culprit);
  }
  depart(std::move(left.group), departure);
}

void run_before_end(std::function<void()> task) {
  Process& all = this_process();
  const std::lock_guard lock(all.departing_mutex);
  ++all.departing;
  std::thread([&all, task = std::move(task)]() mutable {
    task();
    task = nullptr;
    const std::lock_guard lock(all.departing_mutex);
    --all.departing;
    all.changed.notify_all();
  }).detach();
}

std::vector<int64_t> abort_all(const std::string& reason) {
  Process& all = this_process();
  std::vector<int64_t> culprits;
  for (const auto& membership : all.live_memberships()) {
    const auto group = membership->parts().group;
    if (!group) continue;
    if (const auto culprit = group->comm->culprit_process())
      culprits.push_back(*culprit);
    else
      group->comm->abort(reason);
  }
  std::lock_guard lock(all.mutex);
  std::ranges::copy(all.culprits, std::back_inserter(culprits));
  return culprits;
}

bool leave_all(std::chrono::milliseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  Process& all = this_process();
  for (const auto& membership : all.live_memberships()) membership->leave(/*wait=*/false);
  std::unique_lock lock(all.departing_mutex);
  const bool all_left = all.changed.wait_for(lock, limit, [&] { return all.departing == 0; });
  lock.unlock();
  const bool waited_for_calls = std::chrono::steady_clock::now() - begin >= kLeaveMax;
  if (waited_for_calls) std::this_thread::sleep_for(kShutdownGrace);
  return all_left;
}

}  // namespace ropewalk::pytorch
