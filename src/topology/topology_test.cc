// On the machine at hand, whatever it is.
#include "topology/topology.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>

#include "gtest/gtest.h"
#include "ropewalk/status.h"
#include "topology/read_file.h"

namespace ropewalk {
namespace {

TEST(AllowedCpus, AreSortedAndCutByAffinity) {
  const auto list = allowed_cpu_list();
  ASSERT_FALSE(list.empty());
  EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
  EXPECT_GE(allowed_cpus(), 1);
  EXPECT_LE(allowed_cpus(), static_cast<int>(list.size()));
}

TEST(BindThread, MovesTheThreadAndNarrowsTheList) {
  for (int cpu : allowed_cpu_list()) {
    std::thread([cpu] {
      bind_thread_to_cpu(cpu);
      EXPECT_EQ(::sched_getcpu(), cpu);
      EXPECT_EQ(allowed_cpu_list(), std::vector<int>{cpu});
      EXPECT_EQ(allowed_cpus(), 1);
    }).join();
  }
}

TEST(BindThread, RefusesWhatIsNotThere) {
  const auto before = allowed_cpu_list();
  for (int cpu : {-1, 100000, 1 << 20, 1 << 30}) {
    try {
      bind_thread_to_cpu(cpu);
      FAIL() << cpu;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.failure().reason.find(std::to_string(cpu)), std::string::npos);
      EXPECT_NE(error.failure().advice.find(std::to_string(before[0])), std::string::npos);
    }
  }
  EXPECT_EQ(allowed_cpu_list(), before);
}

TEST(BindMemory, LeavesTheContentAlone) {
  const size_t bytes = size_t{1} << 20;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 7, bytes);
  const bool several_nodes = read_file("/sys/devices/system/node/node1/meminfo").has_value();
  const bool bound = bind_memory_near_caller(memory, bytes);
  if (!several_nodes) {
    EXPECT_FALSE(bound) << "a single node needs no binding";
  }
  const char* text = static_cast<const char*>(memory);
  EXPECT_EQ(std::count(text, text + bytes, 7), static_cast<ptrdiff_t>(bytes));
  EXPECT_FALSE(bind_memory_near_caller(memory, 0));
  ::munmap(memory, bytes);
}

std::string identity_of_a_child(bool other_user) {
  int ends[2];
  if (::pipe(ends) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    if (other_user && ::seteuid(12345) != 0) ::_exit(1);
    const std::string identity = host_identity();
    const bool written =
        ::write(ends[1], identity.data(), identity.size()) == static_cast<ssize_t>(identity.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  char text[512];
  const ssize_t got = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return std::string(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
}

TEST(HostIdentity, IsSharedBetweenProcessesOfOneUser) {
  EXPECT_EQ(host_identity(), host_identity());
  EXPECT_EQ(identity_of_a_child(false), host_identity());
  EXPECT_NE(host_identity().find(std::to_string(::geteuid())), std::string::npos);
  if (::geteuid() == 0) {
    EXPECT_NE(identity_of_a_child(true), host_identity());
  }
}

TEST(HostName, IsTheKernels) {
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  EXPECT_EQ(host_name(), name);
}

TEST(ReadFile, WholeTextOrNothing) {
  const std::string path = testing::TempDir() + "ropewalk-read-file-" + std::to_string(::getpid());
  const std::string text(10000, 'x');
  std::ofstream(path) << text;
  EXPECT_EQ(read_file(path), text);
  ::unlink(path.c_str());
  EXPECT_EQ(read_file(path), std::nullopt);
  EXPECT_EQ(read_file("/"), std::nullopt) << "a directory";
}

}  // namespace
}  // namespace ropewalk
