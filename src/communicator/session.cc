#include "communicator/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace ropewalk {
namespace {

/// What counts for the next epochs, too.
Options lasting(Options options) {
  options.key.reset();
  options.stop.reset();
  return options;
}

bool any_with(bool Capabilities::*capability, const Job& job) {
  return std::ranges::any_of(job.transports(), [&](const Transport* transport) {
    return transport->capabilities().*capability;
  });
}

bool any_polls_by_timer(const Job& job) {
  return any_with(&Capabilities::uses_poll_timer, job);
}

/// Between hosts waits are long. A transport that polls by a timer makes them longer.
bool can_sleep_early(const Job& job) {
  return job.choice().between != nullptr && !any_polls_by_timer(job);
}

/// Each look at what other hosts have sent asks the kernel, which may let others compute then.
bool polls_kernel(const Job& job) {
  return job.choice().between != nullptr && any_with(&Capabilities::polls_kernel, job);
}

/// For how long to sleep. A transport that polls by a timer is not always woken, and must poll.
double crowding(const Job& job) {
  return any_polls_by_timer(job) ? 1 : job.ranks_per_cpu();
}

void find_neighbours(Members& members) {
  members.local_size = 0;
  const std::vector<int>& hosts = members.placement.hosts;
  const int own_host = hosts[static_cast<size_t>(members.rank)];
  for (int rank = 0; rank < members.size(); ++rank) {
    if (hosts[static_cast<size_t>(rank)] != own_host) continue;
    if (rank == members.rank) members.local_rank = members.local_size;
    ++members.local_size;
  }
}

}  // namespace

Members members_of(const Job& job) {
  Members all{.rank = job.rank(), .in_job = {}, .placement = {}};
  for (int rank = 0; rank < job.size(); ++rank) all.in_job.push_back(rank);
  all.placement = job.placement();
  find_neighbours(all);
  return all;
}

Members part_of(const Job& job, const Members& whole, const std::vector<int>& ranks) {
  Members part;
  for (const int rank : ranks) {
    const auto index = static_cast<size_t>(rank);
    if (rank == whole.rank) part.rank = part.size();
    part.in_job.push_back(whole.in_job[index]);
  }
  part.placement = job.placement(part.in_job);
  find_neighbours(part);
  return part;
}

Session::Session(const Options& options_, std::shared_ptr<bootstrap::Predecessor> predecessor)
    : options(lasting(options_)),
      job(options_, std::move(predecessor)),
      worker(job.rank(), job.transports(), job.route(), job.monitor()),
      progress(job.set_up([this] {
        return std::make_shared<Progress>(
            worker, clock, job.monitor().event_fd(),
            ProgressOptions{job.config().progress_thread, job.config().progress_cpu,
                            job.shares_cpus(), can_sleep_early(job), polls_kernel(job),
                            crowding(job), job.config().timeout.count()});
      })) {
  first_key = job.config().job_key;
}

bool Session::can_restart() const {
  if (job.size() == 1 || job.world()->epoch() == kFollowersMax) return false;
  if (job.choice().network() != nullptr && job.size() > kNetworkedMax) return false;
  return progress->locked([this] { return worker.is_stopped() && worker.can_restart(); });
}

OwnedEngine Session::make_engine(uint16_t communicator, const Members& members, Monitor& monitor) {
  return progress->locked([&] {
    return OwnedEngine(
        new Engine(worker, communicator, members.rank, members.in_job, memories, monitor, clock),
        {progress.get()});
  });
}

uint32_t Session::propose_number(uint32_t least) const {
  const std::lock_guard lock(mutex_);
  uint32_t number = std::max(least, next_);
  if (living_.size() >= kPartsMax)
    throw Error(ErrorCode::exhausted, "communicator",
                fmt::format("there are {} parts of this job already", living_.size()),
                "end those that are not used any more");
  while (!is_free(number)) ++number;
  return number;
}

std::shared_ptr<bootstrap::Part> Session::add_part(uint32_t number,
                                                   const std::vector<int>& members) {
  if (!take_number(number)) return nullptr;
  const auto part = job.add_part(number, members);
  return {part.get(), [session = shared_from_this(), part, number](bootstrap::Part*) {
            session->job.remove_part(*part);
            session->give_back_number(number);
          }};
}

bool Session::take_number(uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (!is_free(number)) return false;
  next_ = number + 1;
  living_.insert(communicator_of(number));
  return true;
}

void Session::give_back_number(uint32_t number) {
  const std::lock_guard lock(mutex_);
  [[maybe_unused]] const size_t erased = living_.erase(communicator_of(number));
  assert(erased == 1);
}

}  // namespace ropewalk
