#include "bootstrap/host_agreements.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <climits>
#include <cstring>
#include <utility>

#include "bootstrap/wire.h"

namespace ropewalk::bootstrap {
namespace {

/// Of what a rank writes, encoded as the frame that would say it.
constexpr size_t kBytesMax = kReasonBytesMax + 1024;
constexpr int64_t kYield_ns = 50'000;  // then sleep
/// Where nobody tells of a death.
constexpr int64_t kLook_ns = 100 * kMillisecond_ns;

/// A register of one writer and many readers, as a sequence lock. A reader takes what it has copied
/// only where `instance` is the same afterwards.
struct Register {
  uint32_t instance = 0;  // of what is there; 0: it is being written
  uint32_t bytes = 0;
  std::array<std::byte, kBytesMax> text;

  std::atomic_ref<uint32_t> valid_for() { return std::atomic_ref(instance); }
  void write(const AgreementMessage& message) {
    const Bytes encoded = frame(message);
    assert(encoded.size() <= text.size());
    valid_for() = 0;
    std::atomic_thread_fence(std::memory_order_release);
    bytes = static_cast<uint32_t>(encoded.size());
    std::memcpy(text.data(), encoded.data(), encoded.size());
    valid_for() = message.instance;
  }
  std::optional<AgreementMessage> read(uint32_t wanted) {
    if (valid_for() != wanted) return {};
    const Bytes copy(text.begin(), text.begin() + std::min<size_t>(bytes, text.size()));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (valid_for() != wanted || copy.size() < kFrameHeaderBytes) return {};
    return decode<AgreementMessage>(ByteSpan(copy).subspan(kFrameHeaderBytes));
  }
};

/// Of a decision: the instance, and who has laid it down.
constexpr uint64_t decided_by(uint32_t instance, int rank) {
  return uint64_t{instance} << 32 | static_cast<uint32_t>(rank);
}
constexpr uint32_t instance_of(uint64_t decided) {
  return static_cast<uint32_t>(decided >> 32);
}
constexpr int rank_of(uint64_t decided) {
  return static_cast<int>(decided & INT_MAX);
}

}  // namespace

struct HostAgreements::Registers {
  Register brought, proposed;
};

struct HostAgreements::SharedState {
  alignas(64) uint32_t events = 0;  // a futex; counts what those who sleep should know
  alignas(64) std::array<uint64_t, 2> decided = {};
  std::array<uint32_t, kRanksMax> has_closed = {};
};

size_t HostAgreements::bytes(int size) {
  return size > kRanksMax ? 0
                          : sizeof(SharedState) + 2 * static_cast<size_t>(size) * sizeof(Registers);
}

HostAgreements::HostAgreements(std::byte* memory, int size, int rank,
                               std::function<bool(int)> lives)
    : shared_(reinterpret_cast<SharedState*>(memory)),
      size_(size),
      rank_(rank),
      lives_(std::move(lives)) {
  assert(reinterpret_cast<uintptr_t>(memory) % alignof(SharedState) == 0);
  assert(rank >= 0 && rank < size && size <= kRanksMax);
}

/// Two for each rank, behind the rest. Nobody begins an instance before the one before has ended
/// for it: who still needs the last but one is late, and left out.
HostAgreements::Registers& HostAgreements::registers(int rank) const {
  return reinterpret_cast<Registers*>(shared_ + 1)[2 * static_cast<size_t>(rank) + instance_ % 2];
}

std::atomic_ref<uint64_t> HostAgreements::decided() const {
  return std::atomic_ref(shared_->decided[instance_ % 2]);
}

AgreementEnd HostAgreements::agree(Agreement::Setup setup, int64_t deadline_ns,
                                   const Clock& clock) {
  const int64_t yields_until_ns = setup.begun_ns + kYield_ns;
  begin(std::move(setup), deadline_ns);
  for (;;) {
    const int64_t now_ns = clock.now_ns();
    if (auto end = advance(now_ns)) return std::move(*end);
    if (now_ns < yields_until_ns)
      sched_yield();
    else
      sleep(now_ns);
  }
}

void HostAgreements::begin(Agreement::Setup setup, int64_t deadline_ns) {
  setup_ = std::move(setup);
  setup_.instance = ++instance_;
  deadline_ns_ = deadline_ns;
  registers(rank_).brought.write({.kind = AgreementMessage::Kind::promise,
                                  .instance = instance_,
                                  .contribution = setup_.contribution});
}

std::optional<AgreementEnd> HostAgreements::advance(int64_t now_ns) {
  events_seen_ = std::atomic_ref(shared_->events);
  const uint64_t before = decided();
  if (instance_of(before) >= instance_) return end_with(before);
  collect();
  if (setup_.is_hopeless(ended_) || now_ns >= deadline_ns_ || !lives_(rank_)) return end_without();
  if (setup_.is_voter(rank_) && is_complete(now_ns)) {
    propose(before);
    return end_with(decided());
  }
  wake_at_ns_ = deadline_ns_;
  for (const int64_t until_ns : {setup_.suspects_until_ns(), setup_.patient_until_ns})
    if (now_ns < until_ns) wake_at_ns_ = std::min(wake_at_ns_, until_ns);
  return {};
}

bool HostAgreements::has_ended(int rank) const {
  return !lives_(rank) || std::atomic_ref(shared_->has_closed[static_cast<size_t>(rank)]) != 0;
}

void HostAgreements::collect() {
  brought_.clear();
  for (const int rank : setup_.members) {
    if (rank != rank_ && has_ended(rank)) {
      ended_.insert(rank);
    } else if (auto message = registers(rank).brought.read(instance_)) {
      brought_.emplace(rank, std::move(message->contribution));
    }
  }
}

bool HostAgreements::is_complete(int64_t now_ns) const {
  const bool has_all = std::ranges::all_of(setup_.members, [&](int rank) {
    return brought_.contains(rank) || ended_.contains(rank) ||
           (std::ranges::count(setup_.suspects, rank) != 0 && now_ns >= setup_.suspects_until_ns());
  });
  return setup_.is_quorum(brought_, &decltype(brought_)::value_type::first) &&
         (has_all || now_ns >= setup_.patient_until_ns);
}

/// Unless another has been faster.
void HostAgreements::propose(uint64_t before) {
  registers(rank_).proposed.write({.kind = AgreementMessage::Kind::decided,
                                   .instance = instance_,
                                   .decision = decision_of(brought_, ended_)});
  if (decided().compare_exchange_strong(before, decided_by(instance_, rank_))) wake();
}

/// A later instance, or what its author has written for that, tells that others have gone on
/// without this rank.
AgreementEnd HostAgreements::end_with(uint64_t decided) {
  const bool is_known = instance_of(decided) == instance_ && rank_of(decided) < size_;
  auto message = is_known ? registers(rank_of(decided)).proposed.read(instance_) : std::nullopt;
  if (!message) return end_without();
  return {std::move(message->decision), {}};
}

AgreementEnd HostAgreements::end_without() {
  close();
  AgreementEnd end;
  for (const int rank : setup_.members)
    if (rank == rank_ || brought_.contains(rank)) end.seen.push_back(rank);
  return end;
}

void HostAgreements::close() {
  std::atomic_ref(shared_->has_closed[static_cast<size_t>(rank_)]) = 1;
  wake();
}

void HostAgreements::wake() {
  ++std::atomic_ref(shared_->events);
  syscall(SYS_futex, &shared_->events, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void HostAgreements::sleep(int64_t now_ns) const {
  const int64_t left_ns = std::clamp<int64_t>(wake_at_ns_ - now_ns, 0, kLook_ns);
  const timespec limit{.tv_sec = 0, .tv_nsec = left_ns};
  syscall(SYS_futex, &shared_->events, FUTEX_WAIT, events_seen_, &limit, nullptr, 0);
}

}  // namespace ropewalk::bootstrap
