#include "ropewalk/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "communicator/find_costs.h"
#include "communicator/impl.h"
#include "communicator/next_epoch.h"
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
enum class PartOutcome : uint8_t { made, taken, failed };  // taken: its number, here

struct PartTry {
  std::shared_ptr<Communicator::Impl> part;
  PartOutcome outcome = PartOutcome::made;
  std::optional<Error> failure;
};

/// As all_gather takes them.
template <class Wish>
auto numbers_of(std::span<Wish> wishes) {
  using Number = std::conditional_t<std::is_const_v<Wish>, const int32_t, int32_t>;
  static_assert(sizeof(Wish) % sizeof(int32_t) == 0);
  return std::span(reinterpret_cast<Number*>(wishes.data()), wishes.size_bytes() / sizeof(Number));
}

std::span<uint8_t> codes_of(std::span<PartOutcome> outcomes) {
  return {reinterpret_cast<uint8_t*>(outcomes.data()), outcomes.size()};
}

PartTry try_to_make(const std::shared_ptr<Communicator::Impl>& whole, const std::vector<int>& ranks,
                    uint32_t number, int64_t timeout_ns) try {
  Members members = part_of(whole->session->job, whole->members, ranks);
  auto part = whole->session->add_part(number, members.in_job);
  if (!part) return {nullptr, PartOutcome::taken, {}};
  return {std::make_shared<Communicator::Impl>(whole, ranks, std::move(members), std::move(part),
                                               timeout_ns),
          PartOutcome::made,
          {}};
} catch (const Error& error) {
  return {nullptr, PartOutcome::failed, error};
} catch (const std::bad_alloc&) {
  return {nullptr, PartOutcome::failed,
          Error(ErrorCode::exhausted, "communicator", "there is no memory left",
                "give the process more")};
}

/// The part, where all have made theirs; null where another number is to be tried. Throws where one
/// could not.
std::shared_ptr<Communicator::Impl> finish(PartTry own, const std::vector<int>& members,
                                           const std::vector<PartOutcome>& outcomes, bool all_made,
                                           const char* operation, Communicator::Impl& whole) {
  if (own.part && !all_made) std::exchange(own.part, nullptr)->forget();
  if (own.failure) throw Error(*own.failure);
  for (size_t i = 0; i < members.size(); ++i)
    if (outcomes[i] == PartOutcome::failed)
      throw whole.blame({ErrorCode::unavailable, operation,
                         fmt::format("rank {} could not make its part", members[i]),
                         fmt::format("see the output of rank {}", members[i]), whole.rank(),
                         members[i]});
  return own.part;
}

void check_members(const std::vector<int>& ranks, int own, int size) {
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  const bool are_ranks = !sorted.empty() && sorted.front() >= 0 && sorted.back() < size &&
                         std::ranges::adjacent_find(sorted) == sorted.end();
  if (!are_ranks || std::ranges::count(ranks, own) == 0)
    throw Error(
        ErrorCode::invalid_argument, "create_group",
        fmt::format("ranks {} are no group of rank {} of {}", fmt::join(ranks, ", "), own, size),
        fmt::format("give ranks from 0 to {}, each once, and this one", size - 1));
}

/// Of texts "number:ranks of the group".
std::vector<uint32_t> parse_numbers(const std::vector<std::string>& texts,
                                    const std::vector<int>& ranks, int own) {
  std::vector<uint32_t> numbers;
  const std::string list = fmt::format("{}", fmt::join(ranks, ","));
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t colon = texts[i].find(':');
    const auto number = parse_number<uint32_t>(std::string_view(texts[i]).substr(0, colon));
    if (!number || colon == std::string::npos) break;
    numbers.push_back(*number);
    if (texts.size() == ranks.size() && texts[i].substr(colon + 1) != list)
      throw Error(Failure{ErrorCode::mismatch, "create_group",
                          fmt::format("rank {} makes a group of the ranks {}, rank {} of {}", own,
                                      list, ranks[i], texts[i].substr(colon + 1)),
                          "give the same ranks, in the same order, on all of them", own, ranks[i]});
  }
  if (texts.size() != ranks.size() || numbers.size() != ranks.size())
    throw Error(Failure{ErrorCode::protocol, "create_group",
                        fmt::format("the exchange gave \"{}\" for {} ranks",
                                    fmt::join(texts, "\", \""), ranks.size()),
                        "give what each rank of the group has passed, in their order", own, -1});
  return numbers;
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
  const auto [impl, is_newcomer] = join_job(options);
  auto communicator = std::make_unique<Communicator>(impl);
  if (is_newcomer)
    find_costs_anew(*communicator, *impl);
  else
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

void Communicator::run_beside(const Call& call, const std::function<void()>& meanwhile) {
  impl_->run_beside(call, meanwhile);
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
  run(impl_->barrier_call());
}

void Communicator::run_committed(const Call& call,
                                 std::optional<std::chrono::nanoseconds> timeout) {
  impl_->committed.run(*impl_, call, timeout ? timeout->count() : impl_->driver->timeout_ns());
}

std::optional<int> Communicator::next_sender(std::chrono::nanoseconds limit, int channel) {
  require_channel("next_sender", channel);
  return impl_->driver->next_sender(channel, limit.count());
}

void Communicator::interrupt_next_sender(int channel) {
  require_channel("interrupt_next_sender", channel);
  impl_->driver->interrupt_next_sender(channel);
}

std::optional<Failure> Communicator::failure() const {
  const Failure* failure = impl_->monitor().failure();
  return failure == nullptr ? std::nullopt : std::optional(*failure);
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
  const auto ranks = static_cast<size_t>(size());
  for (uint32_t least = 1;; ++least) {
    const SplitWish own{color, key, impl_->session->propose_number(least)};
    std::vector<SplitWish> wishes(ranks);
    all_gather(numbers_of(std::span(&own, 1)), numbers_of(std::span(wishes)));
    const std::vector<int> members = color < 0 ? std::vector<int>() : ranks_of(wishes, color);
    for (const int member : members)
      least = std::max(least, wishes[static_cast<size_t>(member)].number);

    PartTry part;
    if (color >= 0) part = try_to_make(impl_, members, least, impl_->driver->timeout_ns());
    std::vector<PartOutcome> outcomes(ranks);
    all_gather(codes_of(std::span(&part.outcome, 1)), codes_of(std::span(outcomes)));
    std::vector<PartOutcome> of_members;
    for (const int member : members) of_members.push_back(outcomes[static_cast<size_t>(member)]);
    const bool all_made = std::ranges::count(outcomes, PartOutcome::made) == std::ssize(outcomes);
    if (auto made = finish(std::move(part), members, of_members, all_made, "split", *impl_))
      return std::make_unique<Communicator>(std::move(made));
    if (all_made) return nullptr;
  }
}

// The same in two exchanges.
std::unique_ptr<Communicator> Communicator::create_group(
    const std::vector<int>& ranks, const Exchange& exchange,
    std::optional<std::chrono::nanoseconds> timeout) {
  impl_->check({});
  check_members(ranks, rank(), size());
  const int64_t timeout_ns = timeout ? timeout->count() : impl_->driver->timeout_ns();
  const auto exchange_numbers = [&](uint32_t own) {
    return parse_numbers(exchange(fmt::format("{}:{}", own, fmt::join(ranks, ","))), ranks, rank());
  };
  for (uint32_t least = 1;; ++least) {
    const auto proposed = exchange_numbers(impl_->session->propose_number(least));
    least = std::ranges::max(proposed);
    PartTry part = try_to_make(impl_, ranks, least, timeout_ns);
    std::vector<PartOutcome> outcomes;
    try {
      for (const uint32_t number : exchange_numbers(static_cast<uint32_t>(part.outcome)))
        outcomes.push_back(number <= 2 ? static_cast<PartOutcome>(number) : PartOutcome::failed);
    } catch (...) {
      // The others may have heard that all is well.
      if (part.part)
        part.part->monitor().report(
            {ErrorCode::aborted, "create_group",
             fmt::format("the exchange of texts failed on rank {}", part.part->rank()),
             "see its output", part.part->rank(), part.part->rank()});
      throw;
    }
    const bool all_made = std::ranges::count(outcomes, PartOutcome::made) == std::ssize(outcomes);
    if (auto made = finish(std::move(part), ranks, outcomes, all_made, "create_group", *impl_))
      return std::make_unique<Communicator>(std::move(made));
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
