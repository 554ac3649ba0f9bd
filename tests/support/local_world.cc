#include "tests/local_world.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ropewalk::testing {

int listen_on_loopback(std::string& address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(name);
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&name), length) != 0 ||
      ::listen(fd, 64) != 0 || ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0)
    throw Error(ErrorCode::system, "test", "cannot listen on the loopback interface");
  address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  return fd;
}

void run_ranks(int ranks, const std::string& transport,
               const std::function<void(Communicator&)>& body,
               const std::function<void(int rank, Options&)>& adjust) {
  std::string coordinator;
  const int fd = listen_on_loopback(coordinator);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    try {
      Options options;
      options.rank = rank;
      options.size = ranks;
      options.coordinator = coordinator;
      if (rank == 0) options.coordinator_fd = fd;
      options.transport = transport;
      options.key = "test";
      if (adjust) adjust(rank, options);
      const auto comm = Communicator::create(options);
      body(*comm);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  ::close(fd);
  if (first) std::rethrow_exception(first);
}

void expect_sum_of_ranks(Communicator& comm, size_t count) {
  std::vector<float> data(count, static_cast<float>(comm.rank()));
  comm.all_reduce(data);
  const auto sum = static_cast<float>(comm.size() * (comm.size() - 1) / 2);
  EXPECT_EQ(data, std::vector<float>(count, sum));
}

}  // namespace ropewalk::testing
