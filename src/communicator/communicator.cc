#include "ropewalk/communicator.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "communicator/communicator_impl.h"
#include "communicator/cost_probe.h"
#include "communicator/split.h"
#include "ropewalk/fork.h"

namespace ropewalk {
namespace {

int64_t timeout_of(const Group& group, std::optional<std::chrono::nanoseconds> timeout) {
  return timeout ? timeout->count() : group.driver->timeout_ns();
}

Group& require(const std::shared_ptr<Group>& group) {
  if (!group)
    throw Error(ErrorCode::invalid_argument, "wait", "an empty Work or Plan has nothing to run");
  group->driver->throw_if_forked();
  return *group;
}

void require_channel(const char* operation, int channel) {
  if (channel < 0 || channel >= kChannels)
    throw Error(ErrorCode::invalid_argument, operation,
                fmt::format("channel {} is not in 0..{}", channel, kChannels - 1));
}

/// Waits for an operation whose handle goes away; there is nobody to throw to.
void finish(std::shared_ptr<const void>& owner, std::shared_ptr<Group>& group) noexcept {
  if (!group) return;
  if (group->driver->is_forked()) {
    abandon(std::move(group));
    return abandon(std::move(owner));
  }
  // A failure that is known is thrown by the calls that follow, if it has not been.
  const bool is_known = group->driver->is_lost(*group) || group->driver->is_stopped();
  const LogLevel level = is_known ? LogLevel::debug : LogLevel::warn;
  try {
    group->driver->wait(*group, group->driver->timeout_ns());
  } catch (const Error& error) {
    log(level, error.rank(), "an operation that nobody waited for failed: {}", error.what());
  }
  group.reset();
}

/// `step` tells whether the operation has ended. Then others may run its group again, so the handle
/// lets go of it.
template <class Step>
bool advance(std::shared_ptr<Group>& handle, const Step& step) {
  const auto group = std::atomic_load(&handle);
  if (!step(require(group))) return false;
  std::atomic_store(&handle, group->driver->ended_group());
  return true;
}

/// A Buffer's memory, and what it is registered with.
struct KeptMemory {
  KeptMemory(std::shared_ptr<Communicator::Impl> impl, std::shared_ptr<RegisteredMemory> registered)
      : owner(std::move(impl)), memory(std::move(registered)) {}
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() {
    if (!owner->driver()->is_forked()) return;
    abandon(std::move(memory));
    abandon(std::move(owner));
  }

  std::shared_ptr<Communicator::Impl> owner;
  std::shared_ptr<RegisteredMemory> memory;  // goes first
};

}  // namespace

Work& Work::operator=(Work&& other) noexcept {
  if (this == &other) return *this;
  finish(owner_, group_);
  group_ = std::move(other.group_);
  owner_ = std::move(other.owner_);
  return *this;
}

Work::~Work() {
  finish(owner_, group_);
}

bool Work::test() {
  return advance(group_, [](Group& group) { return group.driver->test(group); });
}

void Work::wait(std::optional<std::chrono::nanoseconds> timeout) {
  advance(group_, [&](Group& group) {
    group.driver->wait(group, timeout_of(group, timeout));
    return true;
  });
}

void Work::on_done(std::function<void(const Failure*)> done,
                   std::optional<std::chrono::nanoseconds> timeout) {
  const auto group = std::atomic_load(&group_);
  require(group).driver->on_done(*group, std::move(done), timeout_of(*group, timeout));
}

bool Work::wait_for(std::chrono::nanoseconds limit) {
  return advance(group_,
                 [limit](Group& group) { return group.driver->wait_for(group, limit.count()); });
}

Plan& Plan::operator=(Plan&& other) noexcept {
  if (this == &other) return *this;
  finish(owner_, group_);
  group_ = std::move(other.group_);
  owner_ = std::move(other.owner_);
  return *this;
}

Plan::~Plan() {
  finish(owner_, group_);
}

void Plan::run() {
  Group& group = require(group_);
  group.driver->run(group);
}

void Plan::start() {
  Group& group = require(group_);
  group.driver->start(group, true);
}

bool Plan::test() {
  Group& group = require(group_);
  return group.driver->test(group);
}

void Plan::wait(std::optional<std::chrono::nanoseconds> timeout) {
  Group& group = require(group_);
  group.driver->wait(group, timeout_of(group, timeout));
}

Algorithm Plan::algorithm() const {
  return require(group_).algorithm();
}

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() {
  if (impl_->driver()->is_forked())
    abandon(std::move(impl_));
  else
    impl_->close();
}

std::unique_ptr<Communicator> Communicator::create(const Options& options) {
  const auto impl = std::make_shared<Impl>(options);
  auto communicator = std::make_unique<Communicator>(impl);
  impl->set_costs(agree_on_costs(*communicator, impl->job().hosts(), impl->costs(),
                                 impl->job().config().probe));
  return communicator;
}

int Communicator::rank() const {
  return impl_->rank();
}
int Communicator::size() const {
  return impl_->size();
}
int Communicator::local_rank() const {
  return impl_->local_rank();
}
int Communicator::local_size() const {
  return impl_->local_size();
}
std::string Communicator::transport() const {
  return impl_->transport();
}

void Communicator::run(const Call& call, std::optional<std::chrono::nanoseconds> timeout) {
  const auto group = impl_->start(std::span(&call, 1), false);
  group->driver->wait(*group, timeout_of(*group, timeout));
}

Work Communicator::start(const Call& call) {
  return start_group(std::span(&call, 1));
}

Work Communicator::start_group(std::span<const Call> calls) {
  return Work(impl_, impl_->start(calls, true));
}

Plan Communicator::plan(const Call& call) {
  return Plan(impl_, impl_->plan(call));
}

void Communicator::barrier() {
  run(impl_->barrier_call());
}

std::optional<int> Communicator::next_sender(std::chrono::nanoseconds limit, int channel) {
  require_channel("next_sender", channel);
  return impl_->driver()->next_sender(channel, limit.count());
}

void Communicator::interrupt_next_sender(int channel) {
  require_channel("interrupt_next_sender", channel);
  impl_->driver()->interrupt_next_sender(channel);
}

std::optional<int64_t> Communicator::culprit_process() const {
  return impl_->culprit_process();
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  const auto join = [this](const Options& options) {
    const auto part = std::make_shared<Impl>(options);
    part->set_costs(impl_->costs());
    return std::make_unique<Communicator>(part);
  };
  return split_communicator(*this, impl_->options(), color, key, join);
}

void Communicator::leave() {
  impl_->leave();
}

void Communicator::abort(const std::string& reason) {
  impl_->abort(reason);
}

std::shared_ptr<RegisteredMemory> Communicator::allocate_elements(size_t count,
                                                                  size_t element_bytes) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes))
    throw Error(ErrorCode::invalid_argument, "allocate",
                fmt::format("{} elements of {} bytes are more than an address space holds", count,
                            element_bytes));
  const auto kept = std::make_shared<KeptMemory>(impl_, impl_->allocate(bytes));
  return {kept, kept->memory.get()};
}

void* Communicator::address_of(RegisteredMemory& memory) {
  return memory.data();
}

}  // namespace ropewalk
