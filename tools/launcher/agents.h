// The agents of a job's hosts as its launcher starts, hears and loses them.
#pragma once

#include <string>
#include <vector>

#include "tools/command/descriptors.h"
#include "tools/launcher/launcher_state.h"

namespace ropewalk::tools {

class Agents {
 public:
  /// Throws Error(invalid_argument).
  explicit Agents(const JobSpec& job);

  std::vector<Host>& hosts() { return hosts_; }
  const std::vector<Host>& hosts() const { return hosts_; }
  int number_of(const Host& host) const { return static_cast<int>(&host - hosts_.data()); }
  /// No host has an agent.
  bool all_closed() const;
  /// All hosts that have ranks at the job's start do.
  bool all_ready() const;

  /// Those of the hosts that have ranks at the job's start. Throws Error(system).
  void start_first();
  /// One more while the job runs: of a spare host, or of one that was lost. Throws Error(system).
  void start(Host& host);
  /// Whether rank 0 is remote and gets the launcher's standard input by stdin_data.
  bool forwards_stdin() const { return forwards_stdin_; }

  void send_to_all(const Frame& frame);
  /// Sends a sign of life to those on other hosts.
  void show_life(Host::Time now);
  /// Ends the connection, and the process here that holds it, within seconds. Its wait status.
  int close(Host& host);

  struct Silence {
    Host* host;
    std::string text;
    bool is_lost;
  };
  /// Hosts that have been silent for so long that it is to be told, once, or that they are lost.
  std::vector<Silence> silences(Host::Time now);
  /// Those that do not answer when they should after they were dialled.
  std::vector<Host*> unanswered(Host::Time now);

 private:
  void start(Host& host, bool has_begun);

  const JobSpec& job_;
  DescriptorLimit descriptor_limit_;
  std::vector<Host> hosts_;
  std::string key_, path_;
  bool has_stdin_ = false, forwards_stdin_ = false;
  Host::Time looked_ = {}, show_life_at_ = {};
};

/// For an agent to answer.
inline constexpr std::chrono::milliseconds kStartTimeout{30000};

}  // namespace ropewalk::tools
