// The launcher's one loop over its agents, its output and its clock. launcher.cc has what happens
// in an orderly job, launcher_losses.cc what becomes of one that loses ranks and hosts.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/launcher/agents.h"
#include "tools/launcher/frames.h"
#include "tools/launcher/job_output.h"
#include "tools/launcher/launcher_state.h"
#include "tools/launcher/ranks.h"
#include "tools/launcher/restarts.h"
#include "tools/launcher/signals.h"

namespace ropewalk::tools {

inline constexpr int kStatusHostLost = 255;  // as ssh(1)

class Launcher {
 public:
  explicit Launcher(const JobSpec& job);
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  void start_ranks();
  void loop();
  int poll_timeout_ms() const;
  void on_time();
  void check_silence(Clock::time_point now);
  void on_deadline();
  void on_signal();
  void on_frame(Host& host, const Frame& frame);
  void on_exited(Host& host, int rank, int wait_status);
  void on_start_failed(Host& host, const Frame& frame);
  void serve(Host& host, short in_events);
  void lose(Host& host, std::string why);
  void lose_ranks(const std::vector<int>& lost, int status, const std::string& text,
                  bool had_left = false);
  void start_waiting();
  void start_again(const Restarts::RankSlot& place);
  void dial(Host& host);
  void on_dial_failed(Host& host, const std::string& why);
  void on_ready(Host& host, const std::string& listener_text);
  bool may_start_again() const;
  void tell_losses();
  void forward_stdin();
  void enter(Phase phase, std::optional<std::chrono::milliseconds> time);
  void stop(int signal_number, std::chrono::milliseconds time);
  void signal_ranks(int signal_number);
  void fail(int status, const std::string& text);
  void say(const std::string& text) { output_.say(text); }
  void watch_output();
  void finish();
  void expect_end();
  void end_early();
  int exit_status() const;

  const JobSpec& job_;
  SignalScope signals_;
  Agents agents_;
  std::vector<Host>& hosts_ = agents_.hosts();
  Ranks ranks_;
  Restarts restarts_{hosts_, ranks_};
  JobOutput output_;
  bool holds_ = false;  // agents have been told to hold output back
  Phase phase_ = Phase::starting;
  std::optional<Clock::time_point> deadline_, time_limit_;
  std::optional<Clock::time_point> give_up_;  // then output that nobody takes is dropped
  bool is_ending_early_ = false;              // the user or the time limit wants it
  std::optional<int> failure_;                // the job's exit status, once something has failed
  std::optional<Clock::time_point> success_;  // a member was the first to end with status 0
  std::vector<int> lost_;                     // ranks without which an elastic job went on
  int stop_signal_ = 0;                       // the signal that a user sent
  bool stdin_ended_ = false;
  bool stdin_in_flight_ = false;  // rank 0 has not taken the last piece yet
};

}  // namespace ropewalk::tools
