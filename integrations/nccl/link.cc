#include "integrations/nccl/link.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "integrations/nccl/logging.h"

namespace ropewalk::nccl {
namespace {

constexpr size_t kCompletionsAtOnce = 64;
constexpr int64_t kLookInterval_ns = 20 * kMillisecond_ns;
constexpr int64_t kArmInterval_ns = 1000 * kMillisecond_ns;
// What a peer sent before it ended may still be on its way through this host.
constexpr int64_t kGoneGrace_ns = 400 * kMillisecond_ns;
constexpr int64_t kFlushMax_ns = 1000 * kMillisecond_ns;
constexpr const char* kLookAtPeer =
    "look at that rank's output for why it has ended; NCCL aborts the communicator";

}  // namespace

Link::Link(int rank, LinkParts parts)
    : rank_(rank), parts_(std::move(parts)), ring_(std::make_unique<PostingRing>()) {
  ring_memory_ = parts_.transport->register_memory(
      {.base = reinterpret_cast<std::byte*>(ring_.get()), .bytes = sizeof *ring_});
  LinkHello hello;
  if (is_sender()) {
    hello.ring = ring_memory_->key();
    const auto skipped = reinterpret_cast<std::byte*>(ring_.get()) - ring_memory_->base();
    hello.ring_offset = static_cast<uint64_t>(skipped);
  }
  parts_.transport->connect(peer(), std::as_bytes(std::span(&hello, 1)));
}

Link::~Link() {
  if (is_lost_) {
    parts_.transport->set_stopped(true);
  } else if (is_linked_) {
    // What has arrived is read, or the end of a socket with unread bytes would take what this end
    // has sent before with it.
    std::array<Completion, kCompletionsAtOnce> completions;
    const int64_t until_ns = clock_.now_ns() + kFlushMax_ns;
    while (parts_.transport->poll(completions) > 0 ||
           (parts_.transport->has_unsent() && clock_.now_ns() < until_ns))
      sched_yield();
  }
}

bool Link::advance_link() {
  const std::lock_guard lock(mutex_);
  parts_.sockets->advance(clock_.now_ns());
  progress();
  if (is_lost_)
    throw Error(ErrorCode::peer_lost, "connect", "the connection was lost while it was made");
  const auto hello = parts_.transport->hello_of(peer());
  if (!hello) return false;
  if (hello->size() != sizeof peers_hello_)
    throw Error(ErrorCode::protocol, "connect", "the peer greeted in another way",
                "run the same version of Ropewalk on every rank");
  std::memcpy(&peers_hello_, hello->data(), sizeof peers_hello_);
  if (peers_hello_.version != kLinkVersion)
    throw Error(ErrorCode::protocol, "connect",
                fmt::format("the peer's plugin has version {}, this one {}", peers_hello_.version,
                            kLinkVersion),
                "run the same version of Ropewalk on every rank");
  is_linked_ = true;
  return true;
}

MemoryRegistration* Link::register_memory(void* data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto* const begin = static_cast<std::byte*>(data);
  Memory memory{transport().register_memory({.base = begin, .bytes = bytes}), begin, bytes};
  MemoryRegistration* const handle = memory.registration.get();
  memories_.emplace(handle, std::move(memory));
  return handle;
}

Result Link::deregister_memory(MemoryRegistration* memory) {
  const std::lock_guard lock(mutex_);
  return memories_.erase(memory) == 1 ? Result::success : Result::invalid_argument;
}

bool Link::is_registered(const MemoryRegistration* memory, const void* data, size_t bytes) const {
  if (bytes == 0) return true;
  const auto found = memories_.find(memory);
  if (found == memories_.end()) return false;
  const Memory& known = found->second;
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(data) - known.begin);
  return offset <= known.bytes && bytes <= known.bytes - offset;
}

void Link::progress() {
  if (is_lost_) return;
  std::array<Completion, kCompletionsAtOnce> completions;
  const size_t count = transport().poll(completions);
  for (size_t i = 0; i < count && !is_lost_; ++i) {
    switch (completions[i].kind) {
      case Completion::Kind::notice:
        on_notice(completions[i].notice);
        break;
      case Completion::Kind::put_done:
        on_put_done(completions[i].cookie);
        break;
      case Completion::Kind::lost:
        lose_for_transport();
    }
  }
  const int64_t now_ns = clock_.now_ns();
  if (now_ns >= look_ns_) look_at_control(now_ns);
}

/// Adapters do not tell that a peer's process has ended; its socket does.
void Link::look_at_control(int64_t now_ns) {
  look_ns_ = now_ns + kLookInterval_ns;
  if (gone_ns_ == 0) {
    char byte;
    const ssize_t n = ::recv(parts_.control.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) gone_ns_ = now_ns;
  } else if (now_ns - gone_ns_ >= kGoneGrace_ns) {
    return lose("its process has ended, or has closed the communicator", kLookAtPeer);
  }
  if (now_ns < arm_ns_) return;
  arm_ns_ = now_ns + kArmInterval_ns;
  transport().arm();  // looks whether the network swallows what is sent
}

void Link::lose(const std::string& why, const std::string& advice) {
  if (std::exchange(is_lost_, true)) return;
  loss_ = fmt::format("{}{}{}", why, advice.empty() ? "" : "; ", advice);
}

/// That the other end is closed when all is done is as it should be, so that only this is told.
Result Link::fail_lost() {
  if (!std::exchange(loss_told_, true)) warn("lost {}: {}", parts_.peer, loss_);
  return Result::remote_error;
}

void Link::lose_for_transport() {
  const LossReason reason = transport().why_lost(peer());
  lose(reason.text, reason.advice.empty() ? kLookAtPeer : reason.advice);
}

}  // namespace ropewalk::nccl
