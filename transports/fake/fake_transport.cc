#include "transports/fake/fake_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "transports/network_peers.h"

namespace ropewalk {

class FakeTransport::Registration final : public MemoryRegistration {
 public:
  Registration(FakeTransport& transport, uint64_t id, const Region& region)
      : transport_(transport),
        key_{id, region.bytes},
        base_(region.base),
        current_(region.is_own() || transport.fabric_.options_.plain_is_current) {
    transport_.regions_[id] = region;
    transport_.region_ids_[this] = id;
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() override {
    transport_.regions_.erase(key_.id);
    transport_.region_ids_.erase(this);
  }
  RemoteKey key() const override { return key_; }
  const std::byte* base() const override { return base_; }
  bool current() const override { return current_; }

 private:
  FakeTransport& transport_;
  RemoteKey key_;
  const std::byte* base_;
  const bool current_;
};

namespace {

constexpr uintptr_t kPageBytes = 4096;

Region in_whole_pages(const Region& region) {
  const auto begin = reinterpret_cast<uintptr_t>(region.base);
  const size_t before = begin % kPageBytes;
  Region pages = region;
  pages.base -= before;
  pages.bytes = (before + region.bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return pages;
}

}  // namespace

FakeTransport::FakeTransport(FakeFabric& fabric, int rank, int ranks)
    : fabric_(fabric), rank_(rank), sides_(static_cast<size_t>(ranks)) {}

Capabilities FakeTransport::capabilities() const {
  return {.name = "fake",
          .needs_registration = fabric_.options_.needs_registration,
          .registered_sources = fabric_.options_.registered_sources,
          .inline_bytes_max = fabric_.options_.inline_bytes_max};
}

std::unique_ptr<MemoryRegistration> FakeTransport::register_memory(const Region& region) {
  // The rank in the id makes a key that is used on the wrong rank an unknown one.
  const uint64_t id = static_cast<uint64_t>(rank_ + 1) << 32 | ++registrations_;
  const bool is_plain = !region.is_own();
  return std::make_unique<Registration>(
      *this, id, is_plain && fabric_.options_.registered_sources ? in_whole_pages(region) : region);
}

int64_t FakeTransport::arrival_of(Side& to, size_t bytes, bool urgent) {
  const FakeOptions& options = fabric_.options_;
  const auto wire_ns = static_cast<int64_t>(static_cast<double>(bytes) * options.ns_per_byte);
  int64_t left_ns = fabric_.clock_.now + wire_ns;
  if (!urgent) left_ns = to.wire_free_ns = std::max(to.wire_free_ns, fabric_.clock_.now) + wire_ns;
  int64_t& last_ns = to.last_arrival_ns[urgent];
  last_ns =
      std::max(last_ns, left_ns + fabric_.between(options.latency_min_ns, options.latency_max_ns));
  return last_ns;
}

void FakeTransport::connect(int peer, std::span<const std::byte> hello) {
  if (hello.size() > kHelloBytesMax)
    throw Error(ErrorCode::invalid_argument, "fake",
                fmt::format("a hello of {} bytes; at most {}", hello.size(), kHelloBytesMax));
  Side& to = side(peer);
  if (std::exchange(to.connecting, true)) return;
  if (to.cut) {
    const int64_t told_ns = fabric_.clock_.now + fabric_.options_.detection_max_ns;
    fabric_.schedule(told_ns, [this, peer] { tell_lost(peer, "the peer cannot be reached"); });
    return;
  }
  fabric_.schedule(arrival_of(to, hello.size(), false),
                   [this, peer, text = std::vector(hello.begin(), hello.end())] {
                     Side& theirs = fabric_.at(peer).side(rank_);
                     if (theirs.cut) return;
                     fabric_.record('h', rank_, peer, text.size());
                     theirs.hello = text;
                     theirs.hello_here = true;
                   });
}

bool FakeTransport::is_wanted(int peer) const {
  return !side(peer).connecting && side(peer).hello_here;
}

std::optional<std::span<const std::byte>> FakeTransport::hello_of(int peer) const {
  const Side& s = side(peer);
  if (!s.connecting || !s.hello_here || s.dropped) return {};
  return s.hello;
}

Posted FakeTransport::put(const PutRequest& request) {
  assert(!request.urgent || request.bytes <= kUrgentPutBytesMax);
  Side& to = side(request.peer);
  if (to.dropped || to.lost || !to.connecting || !fabric_.alive(rank_)) return Posted::lost;
  if (!to.hello_here) return Posted::full;
  if (!is_within_key(request)) {
    give_up(to);
    to.why = fmt::format("a put was refused: {} bytes at {} do not lie in a region of {} bytes",
                         request.bytes, request.offset, request.key.bytes);
    return Posted::lost;
  }
  if (std::string why = check_source(request); !why.empty()) {
    give_up(to);
    to.why = "a put was refused: " + why;
    return Posted::lost;
  }
  if (to.on_the_way.size() >= fabric_.options_.puts_in_flight_max ||
      fabric_.chance(fabric_.options_.full_probability))
    return Posted::full;
  const bool done = to.puts_to_finish == 0 && fabric_.chance(fabric_.options_.done_probability);
  send(request.peer, std::make_shared<Message>(request), done);
  return done ? Posted::done : Posted::posted;
}

void FakeTransport::send(int peer, std::shared_ptr<Message> message, bool done) {
  Side& to = side(peer);
  const int64_t now = fabric_.clock_.now;
  const int64_t arrival_ns = arrival_of(to, message->put.bytes, message->put.urgent);
  to.on_the_way.push_back(message);
  int64_t read_ns = now;
  if (done) {
    read_source(peer, *message);
  } else {
    read_ns = fabric_.between(now, arrival_ns);
    fabric_.schedule(read_ns, [this, peer, message] { read_source(peer, *message); });
  }
  fabric_.schedule(arrival_ns, [this, peer, message, done] {
    if (message->cancelled) return;
    fabric_.at(peer).arrive(rank_, *message);
    message->arrived = true;
    if (done) std::erase(side(peer).on_the_way, message);
  });
  if (done) return;
  // Before or after the arrival, as real completions are, but in order.
  const int64_t done_ns =
      fabric_.between(read_ns, arrival_ns + fabric_.options_.put_done_delay_max_ns);
  int64_t& last_done_ns = to.last_done_ns[message->put.urgent];
  last_done_ns = std::max(last_done_ns, done_ns);
  ++to.puts_to_finish;
  fabric_.schedule(last_done_ns, [this, peer, message] { complete(peer, message); });
}

std::string FakeTransport::check_source(const PutRequest& put) const {
  const FakeOptions& options = fabric_.options_;
  if (!options.registered_sources || put.bytes <= options.inline_bytes_max) return {};
  const auto found = region_ids_.find(put.source_memory);
  if (found == region_ids_.end()) return "its source is not registered";
  const Region& region = regions_.at(found->second);
  const auto offset = static_cast<size_t>(put.source - region.base);
  if (put.source < region.base || offset > region.bytes || put.bytes > region.bytes - offset)
    return "its source does not lie in the memory that is given for it";
  return {};
}

void FakeTransport::read_source(int peer, Message& message) {
  if (message.cancelled || message.was_read) return;
  if (!check_source(message.put).empty())
    return fabric_.cut(rank_, peer, "a source was deregistered before its put had been done");
  message.was_read = true;
  if (message.put.bytes > 0)
    message.payload.assign(message.put.source, message.put.source + message.put.bytes);
}

void FakeTransport::arrive(int from, Message& message) {
  const Side& theirs = side(from);
  if (theirs.cut || theirs.dropped || theirs.lost) return;
  if (message.put.bytes > 0) {
    std::byte* target = target_of(message.put.key, message.put.offset, message.put.bytes);
    if (!target) {
      fabric_.cut(from, rank_, "a put to memory that is not registered");
      return;
    }
    std::memcpy(target, message.payload.data(), message.put.bytes);
  }
  fabric_.record('n', from, rank_, message.put.notice);
  completions_.push_back({Completion::Kind::notice, from, message.put.notice, 0});
}

void FakeTransport::complete(int peer, const std::shared_ptr<Message>& message) {
  if (message->cancelled) return;
  --side(peer).puts_to_finish;
  fabric_.record('d', rank_, peer, message->put.cookie);
  completions_.push_back({Completion::Kind::put_done, peer, 0, message->put.cookie});
  std::erase(side(peer).on_the_way, message);
}

void FakeTransport::tear(int peer, bool source_readable) {
  for (const auto& message : std::exchange(side(peer).on_the_way, {})) {
    if (std::exchange(message->cancelled, true) || message->arrived) continue;
    if (!message->was_read && !source_readable) continue;
    const std::byte* bytes = message->was_read ? message->payload.data() : message->put.source;
    const auto landed =
        static_cast<size_t>(fabric_.between(0, static_cast<int64_t>(message->put.bytes)));
    std::byte* target = fabric_.at(peer).target_of(message->put.key, message->put.offset, landed);
    if (landed > 0 && target) std::memcpy(target, bytes, landed);
  }
}

void FakeTransport::give_up(Side& to) {
  to.lost = true;
  // From here on the caller may free the sources.
  for (const auto& message : to.on_the_way) message->cancelled = true;
  to.on_the_way.clear();
}

void FakeTransport::tell_lost(int peer, const std::string& why) {
  Side& s = side(peer);
  if (s.dropped || !s.connecting) return;
  fabric_.record('l', rank_, peer, 0);
  give_up(s);
  s.why = why;
  completions_.push_back({Completion::Kind::lost, peer, 0, 0});
}

std::byte* FakeTransport::target_of(RemoteKey key, uint64_t offset, size_t bytes) const {
  const auto found = regions_.find(key.id);
  if (found == regions_.end()) return nullptr;
  const Region& region = found->second;
  if (offset > region.bytes || bytes > region.bytes - offset) return nullptr;
  return region.base + offset;
}

std::byte* FakeTransport::map(int peer, RemoteKey key, uint64_t offset, size_t bytes) {
  if (side(peer).dropped) return nullptr;
  return fabric_.at(peer).target_of(key, offset, bytes);
}

size_t FakeTransport::poll(std::span<Completion> into) {
  size_t filled = 0;
  while (filled < into.size() && !completions_.empty()) {
    into[filled++] = completions_.front();
    completions_.pop_front();
  }
  return filled;
}

void FakeTransport::drop(int peer) {
  Side& s = side(peer);
  if (std::exchange(s.dropped, true)) return;
  // From here on the caller may free the sources.
  for (const auto& message : s.on_the_way)
    if (!message->was_read) message->cancelled = true;
  std::erase_if(s.on_the_way, [](const auto& message) { return message->cancelled; });
  std::erase_if(completions_, [peer](const Completion& c) { return c.peer == peer; });
  fabric_.cut(rank_, peer, "the peer closed the link");
}

LossReason FakeTransport::why_lost(int peer) const {
  return {side(peer).why, /*silent=*/false, {}};
}

}  // namespace ropewalk
