#include "transports/fake/fake_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <deque>
#include <map>

#include "memory/memfd.h"
#include "memory/regions.h"
#include "transports/network_peers.h"

namespace ropewalk {
namespace {

Region in_whole_pages(const Region& region) {
  const PageRange range = PageRange::around(region.base, region.bytes, page_bytes());
  Region pages = region;
  pages.base = reinterpret_cast<std::byte*>(range.begin);
  pages.bytes = range.bytes();
  return pages;
}

}  // namespace

/// One rank's end of the fabric.
class FakeTransport final : public Transport, public MappedMemory {
 public:
  FakeTransport(FakeFabric& fabric, int rank, size_t ranks)
      : fabric_(fabric), options_(fabric.options_), rank_(rank), sides_(ranks) {}

  Capabilities capabilities() const override {
    return {.name = "fake",
            .needs_registration = options_.needs_registration,
            .registered_sources = options_.registered_sources,
            .inline_bytes_max = options_.inline_bytes_max,
            .silence_max_ns = options_.silence_max_ns};
  }
  MappedMemory* mapped_memory() override { return options_.load_store ? this : nullptr; }
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override {
    const bool in_pages = !region.is_own() && options_.registered_sources;
    return std::make_unique<Registration>(*this, in_pages ? in_whole_pages(region) : region);
  }

  void connect(int peer, std::span<const std::byte> hello) override {
    if (hello.size() > kHelloBytesMax)
      throw Error(ErrorCode::invalid_argument, "fake",
                  fmt::format("a hello of {} bytes; at most {}", hello.size(), kHelloBytesMax));
    Side& to = side(peer);
    if (std::exchange(to.connecting, true)) return;
    if (to.cut || to.silent) {
      const int64_t told_ns = fabric_.clock_.now + options_.detection_max_ns;
      fabric_.schedule(told_ns, [this, peer] { tell_lost(peer, "the peer cannot be reached"); });
      return;
    }
    fabric_.schedule(arrival_at(peer, hello.size(), false),
                     [this, peer, text = std::vector(hello.begin(), hello.end())] {
                       Side& theirs = fabric_.at(peer).side(rank_);
                       if (theirs.cut) return;
                       fabric_.record('h', rank_, peer, text.size());
                       theirs.hello = text;
                       theirs.hello_here = true;
                     });
  }
  void find_wanted(std::vector<int>& peers) override {
    for (int peer = 0; peer < static_cast<int>(sides_.size()); ++peer)
      if (const auto& s = sides_[static_cast<size_t>(peer)]; s && !s->connecting && s->hello_here)
        peers.push_back(peer);
  }
  std::optional<std::span<const std::byte>> hello_of(int peer) const override {
    const Side& s = side(peer);
    if (!s.connecting || !s.hello_here || s.dropped) return {};
    return s.hello;
  }

  Posted put(const PutRequest& request) override {
    assert(!request.urgent || request.bytes <= kUrgentPutBytesMax);
    Side& to = side(request.peer);
    if (to.dropped || to.lost || !to.connecting || !fabric_.alive(rank_)) return Posted::lost;
    if (!to.hello_here) return Posted::full;
    const std::string why = is_within_key(request)
                                ? check_source(request)
                                : fmt::format("{} bytes at {} do not lie in a region of {} bytes",
                                              request.bytes, request.offset, request.key.bytes);
    if (!why.empty()) {
      give_up(to);
      to.why = "a put was refused: " + why;
      return Posted::lost;
    }
    if (to.on_the_way.size() >= options_.puts_in_flight_max ||
        fabric_.chance(options_.full_probability))
      return Posted::full;
    const bool done = to.puts_to_finish == 0 && fabric_.chance(options_.done_probability);
    send(request.peer, std::make_shared<Message>(request), done);
    return done ? Posted::done : Posted::posted;
  }
  void set_batching(bool) override {}
  bool has_unsent() override { return false; }

  std::unique_ptr<TransportAllocation> allocate(size_t) override { return nullptr; }
  std::byte* map(int peer, RemoteKey key, uint64_t offset, size_t bytes) override {
    return side(peer).dropped ? nullptr : fabric_.at(peer).target_of(key, offset, bytes);
  }
  void unmap_deregistered() override {}
  void wake(int) override {}

  size_t poll(std::span<Completion> into) override {
    size_t filled = 0;
    while (filled < into.size() && !completions_.empty()) {
      into[filled++] = completions_.front();
      completions_.pop_front();
    }
    return filled;
  }
  bool arm() override { return completions_.empty(); }

  void drop(int peer) override {
    Side& s = side(peer);
    if (std::exchange(s.dropped, true)) return;
    // From here on the caller may free the sources.
    for (const auto& message : s.on_the_way)
      if (!message->was_read) message->cancelled = true;
    std::erase_if(s.on_the_way, [](const auto& message) { return message->cancelled; });
    std::erase_if(completions_, [peer](const Completion& c) { return c.peer == peer; });
    fabric_.cut(rank_, peer, "the peer closed the link");
  }
  void set_stopped([[maybe_unused]] bool on) override { assert(on); }
  LossReason why_lost(int peer) const override {
    const Side& s = side(peer);
    return {.text = s.why, .silent = s.silent, .advice = {}};
  }

 private:
  friend class FakeFabric;

  class Registration final : public MemoryRegistration {
   public:
    Registration(FakeTransport& transport, const Region& region)
        : transport_(transport),
          key_{transport.regions_.add(region) ^ transport.mark(), region.bytes},
          base_(region.base),
          current_(region.is_own() || transport.options_.plain_is_current) {
      transport.sources_[this] = region;
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    ~Registration() override {
      transport_.regions_.remove(key_.id ^ transport_.mark());
      transport_.sources_.erase(this);
    }
    RemoteKey key() const override { return key_; }
    const std::byte* base() const override { return base_; }
    bool current() const override { return current_; }

   private:
    FakeTransport& transport_;
    const RemoteKey key_;
    const std::byte* const base_;
    const bool current_;
  };
  /// A put on its way.
  struct Message {
    explicit Message(const PutRequest& request) : put(request) {}
    const PutRequest put;
    std::vector<std::byte> payload;  // once read
    bool was_read = false;
    bool arrived = false;
    bool cancelled = false;  // never reads, arrives or completes any more
  };
  /// This rank's view of one peer.
  struct Side {
    bool connecting = false;
    bool hello_here = false;
    bool cut = false;              // nothing arrives; this side may not know yet
    bool silent = false;           // nothing is acknowledged any more; the same
    bool lost = false;             // this side knows
    bool dropped = false;          // this side did it
    std::vector<std::byte> hello;  // the peer's
    std::string why;
    int64_t wire_free_ns = 0;                  // when the link to the peer can take the next put
    std::array<int64_t, 2> last_arrival_ns{};  // at the peer; of urgent puts the second
    std::array<int64_t, 2> last_done_ns{};
    int puts_to_finish = 0;                            // posted, and put_done not yet given
    std::vector<std::shared_ptr<Message>> on_the_way;  // to the peer, until arrived and done
  };

  Side& side(int peer) {
    auto& found = sides_.at(peer);
    if (!found) found = std::make_unique<Side>();
    return *found;
  }
  const Side& side(int peer) const {
    static const Side kUntouched;
    const auto& found = sides_.at(peer);
    return found ? *found : kUntouched;
  }
  /// In the ids of its keys, so that a key that is used on the wrong rank is an unknown one.
  uint64_t mark() const { return static_cast<uint64_t>(rank_ + 1) << 48; }
  /// Where a put may write, or null.
  std::byte* target_of(RemoteKey key, uint64_t offset, size_t bytes) const {
    return regions_.find(key.id ^ mark(), offset, bytes);
  }

  int64_t arrival_at(int peer, size_t bytes, bool urgent) {
    Side& to = side(peer);
    const auto wire_ns = static_cast<int64_t>(static_cast<double>(bytes) * options_.ns_per_byte);
    const int64_t now = fabric_.clock_.now;
    int64_t left_ns = now + wire_ns;
    if (!urgent) left_ns = to.wire_free_ns = std::max(to.wire_free_ns, now) + wire_ns;
    const int64_t latency_ns = fabric_.between(options_.latency_min_ns, options_.latency_max_ns);
    int64_t& last_ns = to.last_arrival_ns[urgent];
    last_ns = std::max(last_ns, left_ns + latency_ns);
    for (const FakeOptions::Outage& o : fabric_.outages_) {
      const bool is_hit = o.from == rank_ && o.to == peer && last_ns >= o.begin_ns;
      if (is_hit && last_ns < o.end_ns) last_ns = o.end_ns + latency_ns;
    }
    return last_ns;
  }

  void send(int peer, const std::shared_ptr<Message>& message, bool done) {
    Side& to = side(peer);
    const int64_t now = fabric_.clock_.now;
    const int64_t arrival_ns = arrival_at(peer, message->put.bytes, message->put.urgent);
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
    const int64_t done_ns = fabric_.between(read_ns, arrival_ns + options_.put_done_delay_max_ns);
    int64_t& last_done_ns = to.last_done_ns[message->put.urgent];
    last_done_ns = std::max(last_done_ns, done_ns);
    ++to.puts_to_finish;
    fabric_.schedule(last_done_ns, [this, peer, message] { complete(peer, message); });
  }

  /// Empty, or why its memory does not make the source readable.
  std::string check_source(const PutRequest& put) const {
    if (!options_.registered_sources || put.bytes <= options_.inline_bytes_max) return {};
    const auto found = sources_.find(put.source_memory);
    if (found == sources_.end()) return "its source is not registered";
    const Region& region = found->second;
    const auto offset = static_cast<size_t>(put.source - region.base);
    if (put.source < region.base || offset > region.bytes || put.bytes > region.bytes - offset)
      return "its source does not lie in the memory that is given for it";
    return {};
  }

  void read_source(int peer, Message& message) {
    if (message.cancelled || message.was_read) return;
    if (!check_source(message.put).empty())
      return fabric_.cut(rank_, peer, "a source was deregistered before its put had been done");
    message.was_read = true;
    if (message.put.bytes > 0)
      message.payload.assign(message.put.source, message.put.source + message.put.bytes);
  }

  void arrive(int from, const Message& message) {
    const Side& theirs = side(from);
    if (theirs.cut || theirs.dropped || theirs.lost) return;
    if (message.put.bytes > 0) {
      std::byte* target = target_of(message.put.key, message.put.offset, message.put.bytes);
      if (!target) return fabric_.cut(from, rank_, "a put to memory that is not registered");
      std::memcpy(target, message.payload.data(), message.put.bytes);
    }
    fabric_.record('n', from, rank_, message.put.notice);
    completions_.push_back({Completion::Kind::notice, from, message.put.notice, 0});
  }

  void complete(int peer, const std::shared_ptr<Message>& message) {
    if (message->cancelled) return;
    --side(peer).puts_to_finish;
    fabric_.record('d', rank_, peer, message->put.cookie);
    completions_.push_back({Completion::Kind::put_done, peer, 0, message->put.cookie});
    std::erase(side(peer).on_the_way, message);
  }

  /// The link is cut: of what is on its way some bytes may land, and no notice.
  void tear(int peer, bool source_readable) {
    for (const auto& message : std::exchange(side(peer).on_the_way, {})) {
      if (std::exchange(message->cancelled, true) || message->arrived) continue;
      if (!message->was_read && !source_readable) continue;
      const PutRequest& put = message->put;
      const std::byte* bytes = message->was_read ? message->payload.data() : put.source;
      const auto landed = static_cast<size_t>(fabric_.between(0, static_cast<int64_t>(put.bytes)));
      std::byte* target = fabric_.at(peer).target_of(put.key, put.offset, landed);
      if (landed > 0 && target) std::memcpy(target, bytes, landed);
    }
  }

  void give_up(Side& to) {
    to.lost = true;
    // From here on the caller may free the sources.
    for (const auto& message : to.on_the_way) message->cancelled = true;
    to.on_the_way.clear();
  }

  void tell_lost(int peer, const std::string& why) {
    Side& s = side(peer);
    if (s.dropped || !s.connecting) return;
    fabric_.record('l', rank_, peer, 0);
    give_up(s);
    s.why = why;
    completions_.push_back({Completion::Kind::lost, peer, 0, 0});
  }

  FakeFabric& fabric_;
  const FakeOptions& options_;
  const int rank_;
  std::vector<std::unique_ptr<Side>> sides_;             // by peer; null until needed
  Regions regions_;                                      // the targets of puts
  std::map<const MemoryRegistration*, Region> sources_;  // what is registered
  std::deque<Completion> completions_;
};

FakeFabric::FakeFabric(int ranks, uint64_t seed, FakeOptions options)
    : options_(std::move(options)), outages_(options_.outages), random_(seed), alive_(ranks, true) {
  for (int rank = 0; rank < ranks; ++rank)
    transports_.push_back(std::make_unique<FakeTransport>(*this, rank, alive_.size()));
  for (const auto& loss : options_.losses)
    schedule(loss.at_ns, [this, rank = loss.rank] { lose(rank); });
  for (const auto& c : options_.cuts)
    schedule(c.at_ns,
             [this, c] { c.one_way ? cut_one_way(c.a, c.b) : cut(c.a, c.b, "the link was cut"); });
}

FakeFabric::~FakeFabric() = default;

Transport& FakeFabric::transport(int rank) {
  return *transports_.at(rank);
}

bool FakeFabric::advance() {
  if (events_.empty()) return false;
  const Event next = events_.top();
  events_.pop();
  clock_.now = std::max(clock_.now, next.at_ns);
  next.happen();
  return true;
}

void FakeFabric::advance_at_most_to(int64_t time_ns) {
  if (!events_.empty() && events_.top().at_ns <= time_ns)
    advance();
  else
    clock_.now = std::max(clock_.now, time_ns);
}

void FakeFabric::advance_to(int64_t time_ns) {
  while (!events_.empty() && events_.top().at_ns <= time_ns) advance();
  clock_.now = std::max(clock_.now, time_ns);
}

void FakeFabric::schedule(int64_t at_ns, std::function<void()> happen) {
  events_.push({std::max(at_ns, clock_.now), events_scheduled_++, std::move(happen)});
}

// Not <random>'s distributions: their results differ between standard libraries.
bool FakeFabric::chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

int64_t FakeFabric::between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
}

void FakeFabric::record(int kind, int from, int to, uint64_t what) {
  const uint64_t words[] = {static_cast<uint64_t>(clock_.now), static_cast<uint64_t>(kind),
                            static_cast<uint64_t>(from), static_cast<uint64_t>(to), what};
  for (const uint64_t word : words) digest_ = (digest_ ^ word) * 1099511628211u;
}

void FakeFabric::cut(int a, int b, const std::string& why) {
  record('c', a, b, 0);
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    FakeTransport::Side& side = at(from).side(to);
    if (std::exchange(side.cut, true)) continue;
    at(from).tear(to, /*source_readable=*/!side.dropped && !side.lost);
    const int64_t told_ns =
        clock_.now + between(options_.detection_min_ns, options_.detection_max_ns);
    schedule(told_ns, [this, from = from, to = to, why] { at(from).tell_lost(to, why); });
  }
}

void FakeFabric::cut_one_way(int a, int b) {
  record('o', a, b, 0);
  if (std::exchange(at(b).side(a).cut, true)) return;  // who receives looks at its own side
  const FakeTransport::Side& side = at(a).side(b);
  at(a).tear(b, /*source_readable=*/!side.dropped && !side.lost);
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    at(from).side(to).silent = true;
    const int64_t told_ns =
        clock_.now + between(options_.detection_min_ns, options_.detection_max_ns);
    schedule(told_ns,
             [this, from = from, to = to] { at(from).tell_lost(to, "nothing is acknowledged"); });
  }
}

void FakeFabric::lose(int rank) {
  alive_[rank] = false;
  for (int peer = 0; peer < static_cast<int>(transports_.size()); ++peer)
    if (peer != rank) cut(rank, peer, "the rank died");
}

}  // namespace ropewalk
