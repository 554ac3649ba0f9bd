#include "tests/data_path/one_thread_job.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/local_world.h"

namespace ropewalk::testing {
PlannedCall::PlannedCall(std::vector<std::unique_ptr<Communicator>>& ranks, Collective collective,
                         size_t bytes, CallerMemory memory)
    : ranks_(ranks.size()) {
  const size_t count = bytes / sizeof(int);
  Call call;
  call.collective = collective;
  call.count = count;
  call.type = DataType::int32;
  call.op = kMax;
  // Input and output lie one behind the other. A barrier's are not the caller's, who gives some
  // here.
  const Extent extents = collective == Collective::barrier
                             ? Extent{count, count}
                             : extent_of(call, 0, static_cast<int>(ranks.size()));
  for (size_t r = 0; r < ranks.size(); ++r) {
    Rank& rank = ranks_[r];
    std::span<int> all;
    if (memory == CallerMemory::registered || (memory == CallerMemory::mixed && r % 2 == 0)) {
      rank.registered = ranks[r]->allocate<int>(extents.in + extents.out);
      all = rank.registered.span();
    } else {
      rank.plain.resize(extents.in + extents.out);
      all = rank.plain;
    }
    std::fill_n(all.begin(), extents.in, 1);
    rank.out = all.last(extents.out);
    call.in = all.data();
    call.out = rank.out.data();
    rank.plan = ranks[r]->plan(call);
  }
}

void PlannedCall::run() {
  for (Rank& rank : ranks_) rank.plan.start();
  for (bool done = false; !done;) {
    done = true;
    for (Rank& rank : ranks_) done &= rank.plan.test();
  }
}

bool PlannedCall::is_right() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return std::all_of(rank.out.begin(), rank.out.end(), [](int value) { return value == 1; });
  });
}

std::vector<std::unique_ptr<Communicator>> join_in_one_thread(int ranks) {
  Options options;
  options.size = ranks;
  options.transport = "shm";
  options.key = "test";
  options.progress_thread = false;
  std::string coordinator;
  const int fd = listen_on_loopback(coordinator);
  options.coordinator = coordinator;
  std::vector<std::unique_ptr<Communicator>> joined(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&joined, options, rank, fd]() mutable {
      options.rank = rank;
      if (rank == 0) options.coordinator_fd = fd;
      joined[static_cast<size_t>(rank)] = Communicator::create(options);
    });
  for (std::thread& thread : threads) thread.join();
  ::close(fd);
  return joined;
}

void leave_in_one_thread(std::vector<std::unique_ptr<Communicator>>& ranks) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&rank] { rank.reset(); });
  for (std::thread& thread : threads) thread.join();
  ranks.clear();
}

}  // namespace ropewalk::testing
