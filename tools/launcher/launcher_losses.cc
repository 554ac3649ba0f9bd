#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "ropewalk/status.h"
#include "tools/launcher/launcher_loop.h"
#include "tools/launcher/start_failure.h"

namespace ropewalk::tools {

void Launcher::check_silence(Clock::time_point now) {
  for (const auto& [host, told, is_lost] : agents_.silences(now)) {
    if (is_lost)
      lose(*host, told);
    else
      say(fmt::format("host {}: {}; is it up, and the network to it?", host->name, told));
  }
  if (phase_ == Phase::starting) return;
  for (Host* host : agents_.unanswered(now)) {
    kill(host->agent.pid, SIGKILL);
    lose(*host, fmt::format("no agent answered within {} s", kStartTimeout.count() / 1000));
  }
}

void Launcher::lose(Host& host, std::string why) {
  const int wait_status = agents_.close(host);
  const std::vector<int> lost = ranks_.running(agents_.number_of(host));
  for (const int rank : lost) {
    ranks_[rank].running = false;
    output_.end_lines(rank);
  }
  if (host.done) return;
  if (why.empty()) why = describe_end(host, wait_status);
  const bool was_ready = std::exchange(host.ready, false);
  if (job_.elastic && phase_ != Phase::starting) {
    if (!was_ready) return on_dial_failed(host, why);
    restarts_.note_lost(host, Clock::now());
    if (phase_ == Phase::finishing && !host.had_ranks) return;
    if (!lost.empty()) why += fmt::format(" (ranks {})", ranks_.labels_of(lost));
  }
  // Nothing that was to come before the job's end has come.
  const bool had_left = success_ && host.heard + 2 * kAliveInterval < *success_;
  lose_ranks(lost, kStatusHostLost,
             host.is_remote ? fmt::format("host {} is lost: {}", host.name, why) : why, had_left);
}

void Launcher::on_start_failed(Host& host, const Frame& frame) {
  const int first = std::clamp(frame.rank, 0, ranks_.count() - 1);
  const StartFailure failure =
      describe_start_failure(frame.payload, ranks_[first].label, host.name, job_.program[0],
                             part_of(job_, hosts_, host).workdir);
  if (ranks_.is_restart(first)) {
    host.is_unfit = true;
    ranks_[first].running = false;
    return lose_ranks({first}, failure.status, failure.text);
  }
  for (int rank = first; rank < host.first_rank + host.ranks; ++rank) ranks_[rank].running = false;
  fail(failure.status, failure.text);
  stop(SIGTERM, job_.grace);  // the job can never be complete: no need to wait for errors
}

void Launcher::lose_ranks(const std::vector<int>& lost, int status, const std::string& text,
                          bool had_left) {
  const bool goes_on = job_.elastic && phase_ != Phase::starting && phase_ != Phase::finishing;
  if (!goes_on || failure_ || stop_signal_ != 0) return fail(status, text);
  const Ranks::LossDecision decision = ranks_.decide_loss(lost, restarts_.room(), had_left);
  const std::string told = decision.why.empty() ? text : fmt::format("{}; {}", text, decision.why);
  if (decision.meaning == Ranks::LossDecision::ends_job) return fail(status, told);
  say(told);
  lost_.insert(lost_.end(), lost.begin(), lost.end());
  if (decision.restarts > 0)
    restarts_.want({lost.begin(), lost.begin() + decision.restarts}, Clock::now());
}

bool Launcher::may_start_again() const {
  return phase_ == Phase::running && !failure_ && stop_signal_ == 0 && !ranks_.has_success();
}

void Launcher::start_waiting() {
  if (!may_start_again()) return restarts_.forget();
  while (const auto place = restarts_.next()) start_again(*place);
  while (Host* host = restarts_.host_to_dial(Clock::now())) dial(*host);
  if (restarts_.become_stuck()) {
    say(fmt::format("no host has free slots for ranks {}; they are started again once one is back",
                    ranks_.labels_of(restarts_.waiting())));
  }
}

void Launcher::start_again(const Restarts::RankSlot& place) {
  const int number = ranks_.add_in_place_of(place.lost, place.host, place.slot);
  const RankState& rank = ranks_[number];
  Host& host = hosts_[static_cast<size_t>(rank.host)];
  output_.add_rank(rank.label);
  host.had_ranks = true;
  host.agent.channel.send(
      {FrameKind::restart, number,
       fmt::format("{} {}", place.slot, addresses_for_newcomers(job_, hosts_, ranks_))});
  say(fmt::format("rank {} is started in its place on host {}; {} restart{} left", rank.label,
                  host.name, ranks_.restarts_left(),
                  ranks_.restarts_left() == 1 ? " is" : "s are"));
}

void Launcher::dial(Host& host) try { agents_.start(host); } catch (const Error& error) {
  on_dial_failed(host, error.what());
}

void Launcher::on_dial_failed(Host& host, const std::string& why) {
  restarts_.note_lost(host, Clock::now());
  if (host.tries == 1)  // it had not been lost
    say(fmt::format("host {} cannot be used: {}", host.name, why));
  if (host.tries > kDialsMax) say(fmt::format("host {} is given up: {}", host.name, why));
  if (!may_start_again()) return;
  const Ranks::Room room = restarts_.room();
  const std::string too_few = ranks_.too_few_with(std::min(room.waiting, room.slots));
  if (!too_few.empty()) fail(kStatusHostLost, too_few);
}

void Launcher::tell_losses() {
  if (lost_.empty()) return;
  std::vector<std::string> gone;
  for (const Host& host : hosts_)
    if (host.tries > 0 && host.ranks > 0) gone.push_back(host.name);
  say(fmt::format("{} rank{} lost in all, and {} started again{}", lost_.size(),
                  lost_.size() == 1 ? " was" : "s were", ranks_.restarts(),
                  gone.empty() ? std::string()
                               : fmt::format("; not there at the end: {}", fmt::join(gone, ", "))));
}

}  // namespace ropewalk::tools
