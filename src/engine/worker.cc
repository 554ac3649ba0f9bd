#include "engine/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "engine/engine.h"
#include "engine/executors.h"

namespace ropewalk {

Worker::Worker(int rank, std::vector<Transport*> transports, std::vector<int> route,
               Monitor& monitor)
    : monitor_(monitor),
      connections_(rank, std::move(transports), std::move(route)),
      staging_(connections_.transports()) {
  ended_.reserve(64);
}

void Worker::add(Engine& engine) {
  engines_.push_back(&engine);
  busy_.reserve(engines_.size());  // a start allocates nothing
}

void Worker::remove(Engine& engine) {
  drop(engine);
  std::erase(engines_, &engine);
}

void Worker::restart(const std::vector<int>& departed) {
  assert(stopped_ && can_restart());
  busy_.clear();
  connections_.restart(departed);
  owing_ = true;
  stopped_ = false;
}

bool Worker::progress() {
  if (has_failed()) return false;
  // First what a start, or a message in a mapped slot, made possible; then what polls bring.
  bool moved = advance();
  if ((!moved || needs_poll()) && poll()) moved |= advance();
  return moved;
}

/// Where a turn over mapped memory has ended all there was, a poll could bring nothing that anybody
/// waits for here. But peers may: for an answer to a probe.
bool Worker::needs_poll() {
  constexpr uint32_t kTurnsUnpolled = 64;
  if (has_operations() || connections_.has_puts_under_way() || owing_ ||
      connections_.has_networks())
    return true;
  return ++turns_unpolled_ % kTurnsUnpolled == 0;
}

bool Worker::advance() {
  if (!has_operations() && !connections_.has_puts_under_way() && !owing_) return false;
  connections_.set_batching(true);
  bool moved = false;
  for (size_t i = 0; i < busy_.size();) {
    Engine& engine = *busy_[i];
    moved |= engine.advance();
    if (engine.has_operations() && !engine.has_failed()) {
      ++i;
    } else {
      busy_[i] = busy_.back();
      busy_.pop_back();
    }
  }
  flush();
  connections_.set_batching(false);
  return moved;
}

bool Worker::poll() {
  bool found = false;
  const std::vector<Transport*>& transports = connections_.transports();
  for (size_t t = 0; t < transports.size(); ++t) {
    const size_t count = transports[t]->poll(completions_);
    for (size_t i = 0; i < count; ++i) on_completion(static_cast<int>(t), completions_[i]);
    found |= count > 0;
  }
  found |= connections_.poll_inboxes();  // also where nobody waits: their senders may
  const bool ready = connections_.find_ready();
  owing_ |= ready;  // this rank may have ended before
  return ready || found;
}

void Worker::on_completion(int transport, const Completion& completion) {
  switch (completion.kind) {
    case Completion::Kind::put_done:
      connections_.put_done();
      if (completion.cookie == kProbeCookie)
        connections_.find(completion.peer)->probe_sent();
      else if (completion.cookie != 0)
        PipelinedExecutor::put_done(completion.cookie);
      break;
    case Completion::Kind::notice:
      on_notice(completion.peer, completion.notice);
      break;
    case Completion::Kind::lost:
      if (connections_.transport_index(completion.peer) != transport) break;
      for (Engine* engine : engines_) {
        const int rank = engine->links().rank_of(completion.peer);
        if (rank >= 0) engine->failures().note_lost(rank);
      }
      break;
  }
}

void Worker::on_notice(int peer, uint32_t notice) {
  // A notice can only come from a peer that got our hello, so there is a connection; but bytes from
  // outside are not trusted.
  Connection* const connection = connections_.find(peer);
  if (connection == nullptr || !connection->on_notice(notice))
    return monitor_.report(
        {ErrorCode::protocol, "transport",
         fmt::format("rank {} sent a notice that makes no sense", monitor_.rank_in_epoch(peer)),
         "check that all ranks run the same version of Ropewalk", connections_.rank(), peer});
  if (notice_kind(notice) != NoticeKind::probe) return;
  const uint16_t communicator = notice_communicator(notice);
  const auto engine = std::ranges::find_if(engines_, [&](const Engine* candidate) {
    return candidate->links().communicator() == communicator;
  });
  if (engine != engines_.end()) (*engine)->failures().check_probe((*engine)->links().rank_of(peer));
}

}  // namespace ropewalk
