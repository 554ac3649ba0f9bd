#include "tools/bench/p2p_link.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "topology/topology.h"

namespace ropewalk::tools {
namespace {

constexpr size_t kLineBytes = 64;
// A peer is at most one exchange ahead, so two slots, each on a cache line of its own.
constexpr size_t kExchangeBytes = 2 * kLineBytes;
constexpr uint32_t kExchangeNotice = uint32_t{1} << 31;  // other notices count puts
constexpr uint32_t kSpins = 4096;                        // polls in vain before the first yield
constexpr uint32_t kPollsPerClock = 256;
// That a peer has left is heard on another way than what it sent before.
constexpr int64_t kLeftGrace_ns = 1000 * kMillisecond_ns;

// Exchanges lie behind the data.
size_t exchange_offset(size_t bytes_max, uint64_t number) {
  return (bytes_max + kLineBytes - 1) / kLineBytes * kLineBytes + number % 2 * kLineBytes;
}

}  // namespace

P2pLink::P2pLink(const Setup& setup)
    : setup_(setup),
      out_(exchange_offset(setup.bytes_max, 0) + kExchangeBytes, std::array{&setup.transport},
           bind_memory_near_caller),
      in_(exchange_offset(setup.bytes_max, 0) + kExchangeBytes, std::array{&setup.transport},
          bind_memory_near_caller) {
  Transport& transport = setup_.transport;
  out_.register_with(transport);
  in_.register_with(transport);
  const RemoteKey own = in_.registrations()[0]->key();
  transport.connect(setup_.peer, std::as_bytes(std::span(&own, 1)));
  wait_until([&] { return transport.connected(setup_.peer); });
  const auto hello = *transport.hello_of(setup_.peer);
  if (hello.size() != sizeof peers_in_) fail(ErrorCode::protocol, "greeted in another way");
  memcpy(&peers_in_, hello.data(), sizeof peers_in_);
  if (peers_in_.bytes != own.bytes)
    fail(ErrorCode::mismatch, "was given other --sizes: use the same command line on every rank");
}

template <class Reached>
void P2pLink::wait_until(Reached reached) {
  WaitState wait;
  while (!reached()) {
    if (poll())
      wait = {};
    else
      idle(wait);
  }
}

void P2pLink::idle(WaitState& wait) {
  if (++wait.polls > kSpins) sched_yield();
  if (wait.polls % kPollsPerClock != 0) return;
  if (const Failure* failure = setup_.monitor.failure()) throw Error(*failure);
  const int64_t now_ns = clock_.now_ns();
  if (wait.left_ns == 0 && setup_.monitor.has_left(setup_.peer)) wait.left_ns = now_ns;
  if (wait.left_ns != 0 && now_ns - wait.left_ns > kLeftGrace_ns)
    fail(ErrorCode::peer_lost, "has left the job");
  if (wait.since_ns == 0) wait.since_ns = now_ns;
  if (now_ns - wait.since_ns > setup_.timeout_ns)
    fail(ErrorCode::timeout, fmt::format("did not answer for {}",
                                         time_text(static_cast<double>(setup_.timeout_ns) / 1e3)));
}

bool P2pLink::poll() {
  const size_t count = setup_.transport.poll(completions_);
  for (const Completion& done : std::span(completions_).first(count)) {
    if (done.peer != setup_.peer) continue;
    switch (done.kind) {
      case Completion::Kind::put_done:
        --under_way_;
        break;
      case Completion::Kind::notice:
        on_notice(done.notice);
        break;
      case Completion::Kind::lost:
        fail(ErrorCode::peer_lost, "was lost: " + setup_.transport.why_lost(setup_.peer).text);
    }
  }
  return count > 0;
}

void P2pLink::on_notice(uint32_t notice) {
  if (notice == kExchangeNotice) {
    ++exchanges_here_;
  } else {
    if (notice != puts_here_ % kExchangeNotice) ++misplaced_;
    ++puts_here_;
  }
}

void P2pLink::post(const RegisteredMemory& memory, size_t bytes, uint64_t offset, uint32_t notice) {
  Posted posted = Posted::full;
  const auto taken = [&] {
    posted = setup_.transport.put({.peer = setup_.peer,
                                   .source = memory.data() + offset,
                                   .source_memory = memory.registrations()[0].get(),
                                   .bytes = bytes,
                                   .key = peers_in_,
                                   .offset = offset,
                                   .notice = notice});
    return posted != Posted::full;
  };
  if (!taken()) wait_until(taken);
  if (posted == Posted::lost)
    fail(ErrorCode::peer_lost, "was lost: " + setup_.transport.why_lost(setup_.peer).text);
  if (posted == Posted::posted) ++under_way_;
}

void P2pLink::put(size_t bytes) {
  post(out_, bytes, 0, static_cast<uint32_t>(puts_sent_++ % kExchangeNotice));
}

void P2pLink::put_back(size_t bytes) {
  post(in_, bytes, 0, static_cast<uint32_t>(puts_sent_++ % kExchangeNotice));
}

void P2pLink::await_puts(uint64_t count) {
  puts_awaited_ += count;
  wait_until([this] { return puts_here_ >= puts_awaited_; });
}

void P2pLink::await_out() {
  wait_until([this] { return under_way_ == 0; });
}

uint64_t P2pLink::exchange(uint64_t value) {
  const size_t offset = exchange_offset(setup_.bytes_max, exchanges_++);
  memcpy(out() + offset, &value, sizeof value);
  post(out_, sizeof value, offset, kExchangeNotice);
  wait_until([this] { return exchanges_here_ >= exchanges_ && under_way_ == 0; });
  memcpy(&value, in() + offset, sizeof value);
  return value;
}

void P2pLink::fail(ErrorCode code, const std::string& reason) {
  const Failure failure{code,
                        setup_.operation,
                        fmt::format("rank {} {}", setup_.peer, reason),
                        code == ErrorCode::timeout ? "--timeout changes how long is waited" : "",
                        setup_.rank,
                        setup_.peer};
  setup_.monitor.report(failure);
  throw Error(failure);
}

}  // namespace ropewalk::tools
