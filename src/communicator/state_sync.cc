// Who has which state is told in all_gathers on the communicator itself; the state goes in messages
// of a part with the same ranks, beside whatever the communicator does meanwhile. The part is made
// by the first state that is sent, and kept.
#include "ropewalk/state_sync.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/little_endian.h"
#include "communicator/impl.h"
#include "communicator/state_plan.h"

namespace ropewalk {
namespace {

constexpr const char* kOperation = "sync_state";
constexpr size_t kHugePage = size_t{2} << 20;
/// Nothing goes slower than 4 MB/s, or it counts as failed.
constexpr int64_t kLongest_ns_per_byte = 250;

/// Memory that nobody has touched yet. A fault for each 4 KiB would take longer than copying them.
class RawMemory {
 public:
  explicit RawMemory(size_t bytes) {
    const size_t alignment = bytes >= kHugePage ? kHugePage : alignof(std::max_align_t);
    const size_t size = (bytes / alignment + 1) * alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, size)));
    if (!data_) throw std::bad_alloc();
    if (alignment == kHugePage) ::madvise(data_.get(), size, MADV_HUGEPAGE);
  }
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

std::span<uint8_t> elements(std::byte* data, size_t bytes) {
  return {reinterpret_cast<uint8_t*>(data), bytes};
}

/// `own` of every rank, by rank.
template <class T>
std::vector<T> gather(Communicator& comm, std::span<const T> own) {
  std::vector<T> all(own.size() * static_cast<size_t>(comm.size()));
  comm.all_gather(std::span(reinterpret_cast<const uint8_t*>(own.data()), own.size_bytes()),
                  std::span(reinterpret_cast<uint8_t*>(all.data()), all.size() * sizeof(T)));
  return all;
}

Error mismatch(const Communicator& comm, std::string reason, std::string advice, int peer) {
  return Error(Failure{ErrorCode::mismatch, kOperation, std::move(reason), std::move(advice),
                       comm.rank(), peer});
}

// ---- Names and sizes ----

std::string layout_of(std::span<const NamedBuffer> buffers) {
  std::string layout;
  for (const NamedBuffer& buffer : buffers) {
    little_endian::append(layout, uint64_t{buffer.name.size()});
    layout += buffer.name;
    little_endian::append(layout, uint64_t{buffer.bytes.size()});
  }
  return layout;
}

/// Of each buffer of a layout, in words.
std::vector<std::string> describe(std::string_view layout) {
  std::vector<std::string> texts;
  const auto number = [&] {
    uint64_t value = 0;
    if (layout.size() >= sizeof(value)) {
      value = little_endian::load<uint64_t>(reinterpret_cast<const std::byte*>(layout.data()));
      layout.remove_prefix(sizeof(value));
    }
    return value;
  };
  while (!layout.empty()) {
    const uint64_t length = std::min<uint64_t>(number(), layout.size());
    const std::string_view name = layout.substr(0, length);
    layout.remove_prefix(length);
    texts.push_back(fmt::format("\"{}\" of {} bytes", name, number()));
  }
  return texts;
}

/// Throws the same on all ranks.
[[noreturn]] void throw_difference(Communicator& comm, std::span<const StateRecord> cards,
                                   const std::string& own) {
  std::vector<size_t> counts;
  size_t total = 0, other = 0;  // the first rank that differs from rank 0
  for (const StateRecord& card : cards) {
    counts.push_back(card.layout_bytes);
    total += card.layout_bytes;
    if (other == 0 && !(card.layout == cards[0].layout))
      other = static_cast<size_t>(&card - cards.data());
  }
  std::string all(total, '\0');
  comm.run(Call::all_gather_v(std::span(reinterpret_cast<const uint8_t*>(own.data()), own.size()),
                              std::span(reinterpret_cast<uint8_t*>(all.data()), all.size()),
                              counts));
  size_t begin = 0;
  for (size_t rank = 0; rank < other; ++rank) begin += counts[rank];
  const auto first = describe(std::string_view(all).substr(0, counts[0]));
  const auto second = describe(std::string_view(all).substr(begin, counts[other]));
  const auto at = static_cast<size_t>(std::ranges::mismatch(first, second).in1 - first.begin());
  const auto named = [&](const std::vector<std::string>& texts) {
    return at < texts.size() ? texts[at] : std::string("not there");
  };
  throw mismatch(comm,
                 fmt::format("buffer {} of rank {} is {}, of rank 0 {}", at, other, named(second),
                             named(first)),
                 "give the same names and sizes, in the same order, on every rank",
                 static_cast<int>(other));
}

// ---- Whose state ----

std::string text_of(const StateRecord& card) {
  if (card.kind == StateSource::Kind::rank) return fmt::format("from rank {}", card.of_rank);
  return card.kind == StateSource::Kind::newest ? "newest" : "majority";
}

/// The same on every rank.
struct States {
  std::vector<StateRecord> cards;  // by rank
  std::vector<StateHash> hashes;   // rank by rank, of each buffer; none where all states are equal
  int chosen = 0;                  // the rank
  size_t buffers = 0;

  bool has_chosen(int rank) const {
    return cards[static_cast<size_t>(rank)].state == cards[static_cast<size_t>(chosen)].state;
  }
  std::span<const StateHash> of(int rank) const {
    return std::span(hashes).subspan(static_cast<size_t>(rank) * buffers, buffers);
  }
  std::vector<bool> lacks(int rank) const {
    std::vector<bool> lacks(buffers);
    if (!has_chosen(rank))
      for (size_t i = 0; i < buffers; ++i) lacks[i] = !(of(rank)[i] == of(chosen)[i]);
    return lacks;
  }
};

void check_cards(Communicator& comm, std::span<const StateRecord> cards,
                 const std::string& layout) {
  for (size_t rank = 1; rank < cards.size(); ++rank)
    if (text_of(cards[rank]) != text_of(cards[0]))
      throw mismatch(comm,
                     fmt::format("rank {} asks for the state \"{}\", rank 0 for \"{}\"", rank,
                                 text_of(cards[rank]), text_of(cards[0])),
                     "give the same source on every rank", static_cast<int>(rank));
  if (std::ranges::any_of(cards, [&](const auto& one) { return !(one.layout == cards[0].layout); }))
    throw_difference(comm, cards, layout);
}

States find_states(Communicator& comm, std::span<const NamedBuffer> buffers, StateRecord own) {
  const std::string layout = layout_of(buffers);
  std::vector<StateHash> hashes;
  for (const NamedBuffer& buffer : buffers) hashes.push_back(hash_of(buffer.bytes));
  own.state = hash_of(std::as_bytes(std::span(hashes)));
  own.layout = hash_of(std::as_bytes(std::span(layout)));
  own.layout_bytes = layout.size();

  States states{.cards = gather(comm, std::span<const StateRecord>(&own, 1)),
                .hashes = {},
                .chosen = 0,
                .buffers = buffers.size()};
  check_cards(comm, states.cards, layout);
  const StateChoice choice = choose_state(states.cards);
  states.chosen = choice.rank;
  if (std::ranges::all_of(states.cards, [&](const auto& card) { return card.state == own.state; }))
    return states;
  states.hashes = gather(comm, std::span<const StateHash>(hashes));
  if (!choice.rival) return states;
  size_t at = 0;
  while (states.of(choice.rank)[at] == states.of(*choice.rival)[at]) ++at;
  throw mismatch(
      comm,
      fmt::format("ranks {} and {} both have revision {}, but not the same \"{}\"", choice.rank,
                  *choice.rival, states.cards[static_cast<size_t>(choice.rank)].revision,
                  buffers[at].name),
      "say from which rank the state is to be", *choice.rival);
}

}  // namespace

// ---- Sending and receiving ----

class StateSync::Impl {
 public:
  Impl(std::span<const NamedBuffer> buffers, const States& states, int rank)
      : buffers_(buffers.begin(), buffers.end()), lacks_(states.lacks(rank)) {
    const StateRecord& chosen = states.cards[static_cast<size_t>(states.chosen)];
    report_.revision = chosen.revision;
    report_.hash = chosen.state.text();
    for (int other = 0; other < static_cast<int>(states.cards.size()); ++other)
      if (states.has_chosen(other)) report_.sources.push_back(other);
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (lacks_[i]) {
        report_.changed.push_back(buffers_[i].name);
        hashes_.push_back(states.of(states.chosen)[i]);
      }
  }
  ~Impl() {
    try {
      wait({});
    } catch (const Error&) {  // the calls that follow throw it, too
    }
  }

  /// What rank `rank` sends and receives. `is_copied`: the caller may change the buffers at once.
  std::vector<Call> calls(const States& states, int rank, bool is_copied);
  /// Once those have been started.
  void follow(Work work, int64_t timeout_ns) {
    work_ = std::move(work);
    timeout_ns_ = timeout_ns + kLongest_ns_per_byte * static_cast<int64_t>(report_.bytes_sent +
                                                                           report_.bytes_received);
    has_ended_ = false;
  }
  bool done() { return has_ended_ || work_.test(); }
  const StateReport& wait(std::optional<std::chrono::nanoseconds> timeout);

 private:
  struct Arrival {
    const std::byte* from;
    std::span<std::byte> to;
  };

  void add_sends(const StateShare& share, const States& states, bool is_copied,
                 std::vector<Call>& calls);
  void add_receives(const StateShare& share, int source, std::vector<Call>& calls);
  std::byte* address(const StatePiece& piece) const {
    return buffers_[piece.buffer].bytes.data() + piece.offset;
  }
  void take_over();

  const std::vector<NamedBuffer> buffers_;
  const std::vector<bool> lacks_;  // by buffer
  std::vector<StateHash> hashes_;  // that those are to have
  StateReport report_;
  int64_t timeout_ns_ = 0;
  std::vector<RawMemory> memory_;  // from which, and into which, they go
  std::vector<Arrival> arrivals_;  // packed buffers
  Work work_;                      // goes before the memory
  bool has_ended_ = true;
  std::optional<Error> failure_;
};

std::vector<Call> StateSync::Impl::calls(const States& states, int rank, bool is_copied) {
  std::vector<size_t> sizes;
  for (const NamedBuffer& buffer : buffers_) sizes.push_back(buffer.bytes.size());
  std::vector<bool> wanted(buffers_.size());
  for (int other = 0; other < static_cast<int>(states.cards.size()); ++other) {
    const std::vector<bool> lacks = states.lacks(other);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = wanted[i] || lacks[i];
  }
  const auto shares = share_out(sizes, wanted, report_.sources.size());
  std::vector<Call> calls;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (!states.has_chosen(rank))
      add_receives(shares[i], report_.sources[i], calls);
    else if (report_.sources[i] == rank)
      add_sends(shares[i], states, is_copied, calls);
  }
  return calls;
}

void StateSync::Impl::add_sends(const StateShare& share, const States& states, bool is_copied,
                                std::vector<Call>& calls) {
  const size_t copied = is_copied ? share.pieces.size() : share.packed;
  std::byte* const base = memory_.emplace_back(is_copied ? share.bytes : share.packed_bytes).data();
  for (const StatePiece& piece : std::span(share.pieces).first(copied))
    std::copy_n(address(piece), piece.bytes, base + piece.at);
  for (int rank = 0; rank < static_cast<int>(states.cards.size()); ++rank)
    for (const StateMessage& message : messages_of(share, states.lacks(rank))) {
      const bool lies_in_buffer = message.long_piece != nullptr && !is_copied;
      std::byte* const from = lies_in_buffer ? address(*message.long_piece) : base + message.at;
      calls.push_back(Call::send(elements(from, message.bytes), rank));
      report_.bytes_sent += message.bytes;
    }
}

void StateSync::Impl::add_receives(const StateShare& share, int source, std::vector<Call>& calls) {
  std::byte* const base = memory_.emplace_back(share.packed_bytes).data();
  for (const StatePiece& piece : std::span(share.pieces).first(share.packed))
    if (lacks_[piece.buffer]) arrivals_.push_back({base + piece.at, {address(piece), piece.bytes}});
  for (const StateMessage& message : messages_of(share, lacks_)) {
    std::byte* const to =
        message.long_piece != nullptr ? address(*message.long_piece) : base + message.at;
    calls.push_back(Call::recv(elements(to, message.bytes), source));
    report_.bytes_received += message.bytes;
  }
}

const StateReport& StateSync::Impl::wait(std::optional<std::chrono::nanoseconds> timeout) {
  if (!has_ended_) {
    work_.wait(timeout.value_or(std::chrono::nanoseconds(timeout_ns_)));
    has_ended_ = true;
    take_over();
    memory_.clear();
  }
  if (failure_) throw Error(*failure_);
  return report_;
}

void StateSync::Impl::take_over() {
  for (const Arrival& arrival : arrivals_)
    std::copy_n(arrival.from, arrival.to.size(), arrival.to.data());
  size_t next = 0;
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (lacks_[i] && !(hash_of(buffers_[i].bytes) == hashes_[next++]) && !failure_)
      failure_ = Error(ErrorCode::protocol, kOperation,
                       fmt::format("the buffer \"{}\" has arrived with another hash than it had",
                                   buffers_[i].name),
                       "do not touch buffers before wait has returned; test this host's memory");
}

StateSync::StateSync(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StateSync::StateSync(StateSync&&) noexcept = default;
StateSync& StateSync::operator=(StateSync&&) noexcept = default;
StateSync::~StateSync() = default;

bool StateSync::done() {
  return impl_->done();
}

const StateReport& StateSync::wait(std::optional<std::chrono::nanoseconds> timeout) {
  return impl_->wait(timeout);
}

StateSync Communicator::start_state(std::span<const NamedBuffer> buffers, uint64_t revision,
                                    StateSource source, bool is_copied) {
  impl_->check({});
  if (source.kind == StateSource::Kind::rank && (source.of_rank < 0 || source.of_rank >= size()))
    throw Error(ErrorCode::invalid_argument, kOperation,
                fmt::format("the state is to be from rank {}", source.of_rank),
                fmt::format("give a rank from 0 to {}", size() - 1));
  auto& part = impl_->state_part;
  StateRecord card;
  card.revision = revision;
  card.kind = source.kind;
  card.of_rank = source.of_rank;
  card.has_part = part && !part->failure();
  const States states = find_states(*this, buffers, card);
  auto sync = std::make_unique<StateSync::Impl>(buffers, states, rank());
  if (states.hashes.empty()) return StateSync(std::move(sync));
  if (!std::ranges::all_of(states.cards, &StateRecord::has_part)) {
    impl_->forget_state_part();
    part = split(0, rank());
  }
  try {
    const std::vector<Call> calls = sync->calls(states, rank(), is_copied);
    if (!calls.empty()) {
      // Not from the cache: its staging memory and registrations go when it has ended.
      const auto group = part->impl_->prepare(calls);
      part->impl_->driver->start(*group, true);
      sync->follow(Work(part->impl_, group), impl_->driver->timeout_ns());
    }
  } catch (const std::bad_alloc&) {
    part->abort("there is no memory left to copy the state");
    throw Error(ErrorCode::exhausted, kOperation, "there is no memory left to copy the state",
                "give the process more, or call the blocking sync_state");
  } catch (const Error& error) {
    part->abort(error.failure().reason);
    throw;
  }
  return StateSync(std::move(sync));
}

StateSync Communicator::start_sync_state(std::span<const NamedBuffer> buffers, uint64_t revision,
                                         StateSource source) {
  return start_state(buffers, revision, source, true);
}

StateReport Communicator::sync_state(std::span<const NamedBuffer> buffers, uint64_t revision,
                                     StateSource source,
                                     std::optional<std::chrono::nanoseconds> timeout) {
  return start_state(buffers, revision, source, false).wait(timeout);
}

}  // namespace ropewalk
