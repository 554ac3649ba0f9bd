#include "group.h"

#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

namespace ropewalk::pytorch {
namespace {

constexpr auto kCallPatience = std::chrono::seconds(5);
constexpr auto kPatience = std::chrono::seconds(1);
// For threads whose calls have just failed. Python ends a thread that comes back to it too late,
// and where C++ is on its stack the process with it ("terminate called without an active
// exception").
constexpr auto kLastWords = std::chrono::milliseconds(200);

/// Those of this process. Never destroyed: backends may outlive static objects.
struct Memberships {
  std::mutex mutex;
  std::vector<std::weak_ptr<Membership>> all;
};
Memberships& memberships() {
  static auto* every = new Memberships;
  return *every;
}

/// Threads that leave a job. Never destroyed: they may outlive static objects.
struct Departures {
  std::mutex mutex;
  std::condition_variable changed;
  int under_way = 0;
};
Departures& departures() {
  static auto* all = new Departures;
  return *all;
}

/// Ends what `leave` has begun.
void depart(std::shared_ptr<Group> group) {
  auto& all = departures();
  auto has_left = std::make_shared<bool>(false);
  std::unique_lock lock(all.mutex);
  std::thread([group = std::move(group), has_left]() mutable {
    auto& all = departures();
    group->comm->leave();
    group.reset();
    std::lock_guard lock(all.mutex);
    *has_left = true;
    --all.under_way;
    all.changed.notify_all();
  }).detach();
  all.changed.wait_for(lock, kPatience, [&] { return *has_left; });
}

}  // namespace

std::shared_ptr<Membership> Membership::begin(std::unique_ptr<Communicator> joined) {
  auto fresh = std::make_shared<Membership>();
  fresh->parts_ = {std::make_shared<Group>(std::move(joined)), std::make_shared<Watcher>()};
  auto& [mutex, all] = memberships();
  std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& one) { return one.expired(); });
  all.push_back(fresh);
  return fresh;
}

Membership::Parts Membership::parts() const {
  std::lock_guard lock(mutex_);
  return parts_;
}

void Membership::leave() {
  Parts left;
  {
    std::scoped_lock lock(mutex_, departures().mutex);
    left = std::exchange(parts_, {});
    if (!left.group) return;
    ++departures().under_way;
  }
  left.watcher->stop(kCallPatience, [&comm = *left.group->comm] {
    comm.abort("the process group was destroyed while calls were under way");
  });
  depart(std::move(left.group));
}

bool leave_all(std::chrono::milliseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::weak_ptr<Membership>> all;
  {
    std::lock_guard lock(memberships().mutex);
    all = memberships().all;
  }
  for (const auto& one : all)
    if (const auto membership = one.lock()) membership->leave();
  auto& departing = departures();
  std::unique_lock lock(departing.mutex);
  const bool all_left =
      departing.changed.wait_for(lock, limit, [&] { return departing.under_way == 0; });
  lock.unlock();
  const bool waited_for_calls = std::chrono::steady_clock::now() - begin >= kPatience;
  if (waited_for_calls) std::this_thread::sleep_for(kLastWords);
  return all_left;
}

}  // namespace ropewalk::pytorch
