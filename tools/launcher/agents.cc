#include "tools/launcher/agents.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tools/launcher/agent_link.h"
#include "tools/launcher/job_key.h"
#include "tools/launcher/processes.h"

namespace ropewalk::tools {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSilenceTold{8000};  // of a remote host; ssh's TCP may try again
constexpr milliseconds kEndTimeout{1000};   // for ssh to end by itself, and once it is killed
constexpr rlim_t kLauncherDescriptors = 16;
constexpr rlim_t kDescriptorsPerAgent = 2;

}  // namespace

Agents::Agents(const JobSpec& job)
    : job_(job), hosts_(hosts_of(job, ranks_per_agent(descriptor_limit_.most()))) {}

bool Agents::all_closed() const {
  return std::ranges::all_of(hosts_, &Host::closed);
}

bool Agents::all_ready() const {
  return std::ranges::all_of(hosts_,
                             [](const Host& host) { return host.ready || host.ranks == 0; });
}

void Agents::start_first() {
  descriptor_limit_.raise_to(kLauncherDescriptors + kDescriptorsPerAgent * hosts_.size(),
                             fmt::format("a job with {} agents", hosts_.size()));
  key_ = job_key(job_.node.count == 1);
  has_stdin_ = job_.give_stdin && stdin_is_ours();
  path_ = job_.remote_ropewalk.empty() ? own_path() : job_.remote_ropewalk;
  for (Host& host : hosts_)
    if (host.ranks > 0) start(host, false);
}

void Agents::start(Host& host) {
  start(host, true);
}

void Agents::start(Host& host, bool has_begun) {
  const bool takes_stdin = has_stdin_ && !has_begun && &host == &hosts_[0];
  host.dialled = std::chrono::steady_clock::now();
  host.agent = host.is_remote
                   ? start_remote_agent(host.name, path_, job_.host_timeout, host.tries < 2,
                                        descriptor_limit_)
                   : start_local_agent(takes_stdin ? STDIN_FILENO : -1, descriptor_limit_);
  host.closed = host.ready = host.done = host.had_ranks = host.silence_told = false;
  JobPart part = part_of(job_, hosts_, host, has_begun);
  part.job_key = key_;
  part.forward_stdin = takes_stdin && host.is_remote;
  if (part.forward_stdin) forwards_stdin_ = true;
  host.agent.channel.send({FrameKind::job, -1, encode(part)});
}

void Agents::send_to_all(const Frame& frame) {
  for (Host& host : hosts_) {
    if (!host.closed) host.agent.channel.send(frame);
  }
}

void Agents::show_life(Host::Time now) {
  if (now < show_life_at_) return;
  show_life_at_ = now + kAliveInterval;
  for (Host& host : hosts_) {
    if (host.is_remote && !host.closed && !host.agent.channel.wants_to_write())
      host.agent.channel.send({FrameKind::alive, -1, {}});
  }
}

int Agents::close(Host& host) {
  host.closed = true;
  host.agent.channel.close();
  if (&host == &hosts_[0]) forwards_stdin_ = false;
  int wait_status = 0;
  if (!wait_for(host.agent.pid, kEndTimeout, wait_status)) {
    kill(host.agent.pid, SIGKILL);
    wait_for(host.agent.pid, kEndTimeout, wait_status);
  }
  return wait_status;
}

std::vector<Agents::Silence> Agents::silences(Host::Time now) {
  std::vector<Silence> found;
  const bool was_suspended =
      now - std::exchange(looked_, now) > 4 * kAliveInterval;  // stopped itself
  for (Host& host : hosts_) {
    if (was_suspended) host.heard = now;
    const auto silence = host.silence(now);
    const std::string told = fmt::format("nothing has come from its agent for {:.0f} s",
                                         std::chrono::duration<double>(silence).count());
    if (silence > job_.host_timeout) {
      kill(host.agent.pid, SIGKILL);
      found.push_back({&host, told, true});
    } else if (silence > std::min(kSilenceTold, job_.host_timeout / 2) &&
               !std::exchange(host.silence_told, true)) {
      found.push_back({&host, told, false});
    }
  }
  return found;
}

std::vector<Host*> Agents::unanswered(Host::Time now) {
  std::vector<Host*> found;
  for (Host& host : hosts_)
    if (host.is_dialled() && now > host.dialled + kStartTimeout) found.push_back(&host);
  return found;
}

}  // namespace ropewalk::tools
