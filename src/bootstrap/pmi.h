// PMI-1 and PMI-2: the key-value stores of MPICH's launcher and its kin, and of Slurm. Each rank
// inherits a socket, PMI_FD, over which it asks: PMI-1 in lines of "cmd=NAME key=value ...", PMI-2
// in "cmd=NAME;key=value;..." after six characters with its length. Source: P. Balaji et al., "PMI:
// A Scalable Parallel Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/key_value_store.h"
#include "ropewalk/fork.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {

/// What this process says to its launcher, which awaits a goodbye of everyone that it has served.
class Pmi final : public KeyValueStore {
 public:
  /// `fd` stays the launcher's. With what it calls this `job` (PMI_JOBID), PMI-2 is spoken.
  Pmi(int fd, int rank, std::string job, std::chrono::nanoseconds timeout);
  Pmi(const Pmi&) = delete;
  Pmi& operator=(const Pmi&) = delete;
  /// Says goodbye, except in a forked child.
  ~Pmi() override;

  bool is_forked() const override { return process_.is_forked(); }
  void put(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  void barrier() override;

 private:
  using Fields = std::vector<std::pair<std::string, std::string>>;
  using Answer = std::map<std::string, std::string>;
  struct Format {
    char separator;           // of a message's words
    bool begins_with_length;  // else a message is a line
  };
  static constexpr Format kPmi1{' ', false}, kPmi2{';', true};
  bool speaks_pmi2() const { return !job_.empty(); }
  void begin_pmi1();
  void begin_pmi2(int rank);
  /// Sends what `command` and its fields make, and reads the answer, whose `cmd` must be
  /// `expected`.
  Answer ask(const std::string& command, const Fields& fields, const char* expected);
  /// In PMI-2 the name of the answer follows from the command's.
  Answer ask(const std::string& command, const Fields& fields);
  Answer exchange(const std::string& request, const char* expected, const Format& format);
  std::string read_answer(const std::string& request, const Format& format);
  void read_some(const std::string& request, std::chrono::steady_clock::time_point deadline);

  const int fd_;
  const std::string job_;  // empty: PMI-1
  std::chrono::nanoseconds timeout_;
  const ForkGuard process_;
  std::string received_;  // beyond the last answer
  std::string store_;     // "kvsname"
  size_t value_bytes_max_ = 0;
};

}  // namespace ropewalk::bootstrap
