#include "ropewalk/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "communicator/find_costs.h"
#include "communicator/impl.h"
#include "ropewalk/fork.h"

namespace ropewalk {
namespace {

void require_channel(const char* operation, int channel) {
  if (channel < 0 || channel >= kChannels)
    throw Error(ErrorCode::invalid_argument, operation,
                fmt::format("channel {} is not in 0..{}", channel, kChannels - 1));
}

/// A Buffer's memory, and what it is registered with.
struct KeptMemory {
  ~KeptMemory() {
    if (!owner->driver->is_forked()) return;
    abandon(std::move(memory));
    abandon(std::move(owner));
  }

  std::shared_ptr<Communicator::Impl> owner;
  std::shared_ptr<RegisteredMemory> memory;  // goes first
};

/// What has come of a rank's part.
constexpr uint8_t kMade = 0, kTaken = 1, kFailed = 2;

/// As all_gather takes them.
template <class Wish>
auto numbers_of(std::span<Wish> wishes) {
  using Number = std::conditional_t<std::is_const_v<Wish>, const int32_t, int32_t>;
  static_assert(sizeof(Wish) % sizeof(int32_t) == 0);
  return std::span(reinterpret_cast<Number*>(wishes.data()), wishes.size_bytes() / sizeof(Number));
}

/// Null where the number may not be used here.
std::shared_ptr<Communicator::Impl> make_part(const std::shared_ptr<Communicator::Impl>& whole,
                                              const std::vector<int>& ranks, uint32_t number) {
  Members members = part_of(whole->session->job, whole->members, ranks);
  auto part = whole->session->add_part(number, members.in_job);
  if (!part) return nullptr;
  return std::make_shared<Communicator::Impl>(whole, ranks, std::move(members), std::move(part));
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() {
  if (impl_->driver->is_forked())
    abandon(std::move(impl_));
  else
    impl_->close();
}

std::unique_ptr<Communicator> Communicator::create(const Options& options) {
  const auto impl = std::make_shared<Impl>(options);
  auto communicator = std::make_unique<Communicator>(impl);
  impl->set_costs(find_costs(*communicator, impl->session->job));
  return communicator;
}

int Communicator::rank() const {
  return impl_->rank();
}
int Communicator::size() const {
  return impl_->size();
}
int Communicator::local_rank() const {
  return impl_->members.local_rank;
}
int Communicator::local_size() const {
  return impl_->members.local_size;
}
std::string Communicator::transport() const {
  return names_of(impl_->choice);
}

void Communicator::run(const Call& call, std::optional<std::chrono::nanoseconds> timeout) {
  const auto group = impl_->start(std::span(&call, 1), false);
  impl_->driver->wait(*group, timeout ? timeout->count() : impl_->driver->timeout_ns());
}

Work Communicator::start(const Call& call) {
  return start_group(std::span(&call, 1));
}

Work Communicator::start_group(std::span<const Call> calls) {
  return {impl_, impl_->start(calls, true)};
}

Plan Communicator::plan(const Call& call) {
  impl_->check(std::span(&call, 1));
  return {impl_, impl_->prepare(std::span(&call, 1))};
}

void Communicator::barrier() {
  Call call =
      Call::all_reduce(std::span(reinterpret_cast<uint8_t*>(&impl_->barrier_byte), 1), kMax);
  call.collective = Collective::barrier;
  run(call);
}

std::optional<int> Communicator::next_sender(std::chrono::nanoseconds limit, int channel) {
  require_channel("next_sender", channel);
  return impl_->driver->next_sender(channel, limit.count());
}

void Communicator::interrupt_next_sender(int channel) {
  require_channel("interrupt_next_sender", channel);
  impl_->driver->interrupt_next_sender(channel);
}

std::optional<int64_t> Communicator::culprit_process() const {
  const Failure* failure = impl_->monitor().failure();
  if (failure == nullptr || failure->peer == rank()) return {};
  if (failure->code != ErrorCode::aborted && failure->code != ErrorCode::peer_lost) return {};
  const int peer = failure->peer;
  return impl_->session->job.local_process(
      peer < 0 ? peer : impl_->members.in_job[static_cast<size_t>(peer)]);
}

// Splitting is all_gathers: of color, key and the number that the part may have on each rank, from
// which every rank computes the members of its part, their order and its number; and, once each has
// made its part, of how that went: only then may anything be sent in it. A number that some rank
// has used meanwhile is tried for the next. A part has what the whole has, connections, threads and
// control tree; deadlines, failures and the order of calls are its own.
std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  impl_->driver->throw_if_forked();
  Session& session = *impl_->session;
  const auto ranks = static_cast<size_t>(size());
  for (uint32_t least = 1;;) {
    const SplitWish own{color, key, session.propose_number(least)};
    std::vector<SplitWish> wishes(ranks);
    all_gather(numbers_of(std::span(&own, 1)), numbers_of(std::span(wishes)));
    const std::vector<int> members = color < 0 ? std::vector<int>() : ranks_of(wishes, color);
    for (const int member : members)
      least = std::max(least, wishes[static_cast<size_t>(member)].number);

    std::shared_ptr<Impl> part;
    std::optional<Error> failure;
    uint8_t outcome = kMade;
    try {
      if (color >= 0) part = make_part(impl_, members, least);
      if (color >= 0 && !part) outcome = kTaken;
    } catch (const Error& error) {
      failure = error;
      outcome = kFailed;
    } catch (const std::bad_alloc&) {
      failure =
          Error(ErrorCode::exhausted, "split", "there is no memory left", "give the process more");
      outcome = kFailed;
    }
    std::vector<uint8_t> outcomes(ranks);
    all_gather(std::span(&outcome, 1), outcomes);
    const auto is_made = [&](uint8_t of_rank) { return of_rank == kMade; };
    if (part && !std::ranges::all_of(outcomes, is_made)) std::exchange(part, nullptr)->forget();
    if (failure) throw Error(*failure);
    for (const int member : members)
      if (outcomes[static_cast<size_t>(member)] == kFailed)
        throw impl_->blame({ErrorCode::unavailable, "split",
                            fmt::format("rank {} could not make its part", member),
                            fmt::format("see the output of rank {}", member), rank(), member});
    if (std::ranges::all_of(outcomes, is_made))
      return part ? std::make_unique<Communicator>(part) : nullptr;
    ++least;
  }
}

void Communicator::leave() {
  impl_->leave();
}

// A part that ends since the whole has failed says so, rather than that it ends.
void Communicator::abort(const std::string& reason) {
  impl_->driver->throw_if_forked();
  const auto whole = impl_->whole.lock();
  if (const Failure* of_whole = whole ? whole->monitor().failure() : nullptr)
    return impl_->monitor().report(bootstrap::seen_from_part(*of_whole, impl_->ranks_in_whole));
  impl_->monitor().report({ErrorCode::aborted, "abort",
                           fmt::format("rank {} aborted the job: {}", rank(), reason), "", rank(),
                           rank()});
}

std::shared_ptr<void> Communicator::allocate_elements(size_t count, size_t element_bytes) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes))
    throw Error(ErrorCode::invalid_argument, "allocate",
                fmt::format("{} elements of {} bytes are more than an address space holds", count,
                            element_bytes));
  const std::shared_ptr<KeptMemory> kept(new KeptMemory{impl_, impl_->allocate(bytes)});
  return {kept, kept->memory->data()};
}

}  // namespace ropewalk
