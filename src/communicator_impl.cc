#include "communicator_impl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <map>

#include "base/log.h"
#include "engine/layout.h"
#include "topology/topology.h"
#include "transports/tcp/tcp_transport.h"

namespace ropewalk {
namespace {

constexpr size_t kCacheEntries = 32;
/// Calls of a group up to this size are fused by copying into one buffer.
constexpr size_t kFuseBytesMax = 256 << 10;

/// Options win over the environment.
Knobs merge(Knobs knobs, const Options& options) {
  if (options.key) knobs.job_key = *options.key;
  if (options.transport) knobs.transport = *options.transport;
  if (options.timeout) knobs.timeout = *options.timeout;
  if (options.progress_thread) knobs.progress_thread = *options.progress_thread;
  if (options.progress_cpu) knobs.progress_cpu = options.progress_cpu;
  if (knobs.transport != "auto" && knobs.transport != "shm" && knobs.transport != "tcp")
    throw Error(ErrorCode::unavailable, "communicator",
                fmt::format("there is no transport \"{}\"", knobs.transport),
                "use auto, shm or tcp");
  if (knobs.require == "rdma")
    throw Error(ErrorCode::unavailable, "communicator",
                "ROPEWALK_REQUIRE=rdma, but this build has no RDMA transport",
                "unset ROPEWALK_REQUIRE to run over shared memory and TCP");
  return knobs;
}

bool same_call(const Call& a, const Call& b) {
  return a.collective == b.collective && a.in == b.in && a.out == b.out && a.count == b.count &&
         a.counts == b.counts && a.recv_counts == b.recv_counts && a.type == b.type &&
         a.op.kind == b.op.kind && a.op.scale == b.op.scale && a.op.function == b.op.function &&
         a.op.context == b.op.context && a.root == b.root && a.algorithm == b.algorithm;
}

bool is_idle(const Operation& op) {
  if (op.state == Operation::State::running) return false;
  return std::all_of(op.children.begin(), op.children.end(),
                     [](const auto& child) { return is_idle(*child); });
}

/// The caller's registered memory must still be the one that the operation names to peers.
bool is_valid(const Operation& op) {
  return std::none_of(op.uses.begin(), op.uses.end(),
                      [](const auto& use) { return use.expired(); }) &&
         std::all_of(op.children.begin(), op.children.end(),
                     [](const auto& child) { return is_valid(*child); });
}

bool can_fuse(const Call& call) {
  // Not scaled_sum: each rank has its own scales, and all must fuse alike.
  return call.collective == Collective::all_reduce && call.op.kind != ReduceKind::user &&
         call.op.kind != ReduceKind::scaled_sum && call.count * size_of(call.type) <= kFuseBytesMax;
}

bool fuses_with(const Call& a, const Call& b) {
  return can_fuse(a) && can_fuse(b) && a.type == b.type && a.op.kind == b.op.kind &&
         a.algorithm == b.algorithm;
}

}  // namespace

Communicator::Impl::Impl(const Options& options)
    : knobs_(merge(knobs_from_environment(), options)) {
  set_log_level(knobs_.log);
  for (const std::string& name : unknown_knobs(environ))
    log(LogLevel::warn, -1, "{} is no variable that Ropewalk knows; see `ropewalk env`", name);
  const Identity identity =
      find_identity(options, knobs_, [](const char* name) { return std::getenv(name); });
  std::string info = knobs_.transport;
  if (identity.size > 1 && knobs_.transport != "tcp") {
    shm_ = std::make_unique<ShmTransport>(identity.rank, identity.size);
    info += ";" + shm_->info();
  }
  world_ = World::join(identity, knobs_, info);
  choose_transports();
  start_engine();
}

Communicator::Impl::~Impl() {
  if (!driver_) return;
  leave();
  driver_->stop();
}

void Communicator::Impl::leave() {
  if (world_->size() == 1) return;
  if (world_->monitor().failure() == nullptr && std::uncaught_exceptions() > exceptions_)
    world_->monitor().report({ErrorCode::aborted, "communicator",
                              fmt::format("rank {} left because of an exception", rank()),
                              fmt::format("see the output of rank {}", rank()), rank(), rank()});
  if (world_->monitor().failure() != nullptr) return;
  // Peers may still wait for bytes that lie in this rank's queues: go on while leaving.
  auto left = std::async(std::launch::async, [this] { world_->leave(); });
  while (left.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
    driver_->locked([this] { return engine_->progress(); });
}

void Communicator::Impl::choose_transports() {
  std::map<std::string, int> host_numbers;
  std::vector<std::string> infos(static_cast<size_t>(size()));
  const Card& own = world_->card(rank());
  local_size_ = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const Card& card = world_->card(peer);
    hosts_.push_back(host_numbers.try_emplace(card.host_id, static_cast<int>(host_numbers.size()))
                         .first->second);
    const std::string wanted = card.transport_info.substr(0, card.transport_info.find(';'));
    if (wanted != knobs_.transport)
      throw Error(ErrorCode::mismatch, "communicator",
                  fmt::format("rank {} wants transport {}, rank {} wants {}", rank(),
                              knobs_.transport, peer, wanted),
                  "set ROPEWALK_TRANSPORT alike on every rank");
    if (card.host_id != own.host_id) continue;
    if (peer == rank()) local_rank_ = local_size_;
    ++local_size_;
    if (shm_) infos[static_cast<size_t>(peer)] = card.transport_info.substr(wanted.size() + 1);
  }
  const std::string required = knobs_.require.empty() ? knobs_.transport : knobs_.require;
  if (required == "shm" && local_size_ < size())
    throw Error(ErrorCode::unavailable, "communicator",
                "shared memory was asked for, but the ranks are on several hosts",
                "use ROPEWALK_TRANSPORT=auto, which takes TCP between hosts");
  const bool use_shm = shm_ != nullptr && local_size_ > 1;
  if (use_shm) {
    shm_->set_peers(infos);
    transports_.push_back(shm_.get());
  }
  if (!use_shm || local_size_ < size()) {
    if (size() > 1) {
      tcp_ = std::make_unique<TcpTransport>(rank(), size(), world_->sockets(), knobs_.tcp_streams);
      transports_.push_back(tcp_.get());
    }
  }
  for (int peer = 0; peer < size(); ++peer) {
    const bool local = world_->card(peer).host_id == own.host_id;
    route_.push_back(use_shm && !local ? 1 : 0);
  }
  if (rank() == 0 && size() > 1)
    log(LogLevel::info, 0, "{} ranks on {} hosts: {}", size(), host_numbers.size(),
        !use_shm                  ? "TCP between all"
        : transports_.size() == 1 ? "shared memory between all"
                                  : "shared memory within hosts, TCP between them");
}

std::string Communicator::Impl::transport() const {
  std::string names;
  for (const Transport* transport : transports_)
    names += (names.empty() ? "" : "+") + std::string(transport->name());
  return names.empty() ? "self" : names;
}

void Communicator::Impl::start_engine() {
  engine_ = std::make_unique<Engine>(rank(), size(), transports_, route_, memories_,
                                     world_->monitor(), clock_);
  DriverOptions options;
  options.timeout_ns = knobs_.timeout.count();
  options.progress_thread = knobs_.progress_thread;
  options.progress_cpu = knobs_.progress_cpu;
  options.oversubscribed = local_size_ > allowed_cpus();
  driver_ = std::make_shared<Driver>(*engine_, clock_, world_->monitor().event_fd(), options);
}

std::shared_ptr<RegisteredMemory> Communicator::Impl::allocate(size_t bytes) {
  auto memory = std::make_shared<RegisteredMemory>(bytes, bind_memory_near_caller);
  driver_->locked([&] {
    for (Transport* transport : transports_) memory->register_with(*transport);
    return true;
  });
  memories_.add(memory);
  return memory;
}

void Communicator::Impl::abort(const std::string& reason) {
  world_->monitor().report({ErrorCode::aborted, "abort",
                            fmt::format("rank {} aborted the job: {}", rank(), reason), "", rank(),
                            rank()});
}

Call Communicator::Impl::barrier_call() {
  Call call;
  call.collective = Collective::barrier;
  call.in = call.out = &barrier_byte_;
  call.count = 1;
  call.type = DataType::uint8;
  call.op = kMax;
  return call;
}

std::shared_ptr<Operation> Communicator::Impl::plan(const Call& call) {
  check(std::span(&call, 1));
  return prepare(std::span(&call, 1));
}

std::shared_ptr<Operation> Communicator::Impl::start(std::span<const Call> calls,
                                                     bool in_background) {
  check(calls);
  std::lock_guard lock(cache_mutex_);
  auto op = cached(calls);
  driver_->start(op, in_background);
  return op;
}

void Communicator::Impl::check(std::span<const Call> calls) const {
  if (const Failure* failure = world_->monitor().failure()) throw Error(*failure);
  for (const Call& call : calls) check_call(call, rank(), size());
}

std::shared_ptr<Operation> Communicator::Impl::cached(std::span<const Call> calls) {
  cache_.remove_if(
      [](const Cached& entry) { return is_idle(*entry.operation) && !is_valid(*entry.operation); });
  for (auto entry = cache_.begin(); entry != cache_.end(); ++entry) {
    // A Work that was not waited for must not see the next run.
    if (entry->operation.use_count() > 1 || !is_idle(*entry->operation) ||
        !std::equal(entry->calls.begin(), entry->calls.end(), calls.begin(), calls.end(),
                    same_call))
      continue;
    cache_.splice(cache_.begin(), cache_, entry);
    return cache_.front().operation;
  }
  cache_.push_front({{calls.begin(), calls.end()}, prepare(calls)});
  for (auto entry = cache_.end(); cache_.size() > kCacheEntries && entry != cache_.begin();) {
    --entry;
    if (entry->operation.use_count() == 1 && is_idle(*entry->operation))
      entry = cache_.erase(entry);
  }
  return cache_.front().operation;
}

std::shared_ptr<Operation> Communicator::Impl::prepare(std::span<const Call> calls) {
  auto op = calls.size() == 1 ? prepare_one(calls[0]) : prepare_group(calls);
  op->driver = driver_;
  return op;
}

size_t Communicator::Impl::slice_bytes() const {
  return std::max(knobs_.slice_bytes / 64 * 64, kEagerBytesMax);
}

Choice Communicator::Impl::choose_for(const Call& call) {
  Question question;
  question.collective = call.collective;
  // The ranks of an all_to_all_v know different totals, but must choose alike.
  const bool uneven = call.collective == Collective::all_to_all && !call.counts.empty();
  question.bytes = uneven ? slice_bytes() : total_bytes(call, size());
  question.ranks = size();
  question.hosts = hosts_;
  question.root = call.root;
  question.forced = call.algorithm;
  if (size() == 1) return {algorithms_for(call.collective).front(), slice_bytes(), 0, {}};
  if (call.algorithm == Algorithm::automatic) {
    const auto wanted = algorithm_named(knobs_.algorithm);
    if (!wanted)
      throw Error(ErrorCode::unavailable, "communicator",
                  fmt::format("ROPEWALK_ALGORITHM={}: no such algorithm", knobs_.algorithm),
                  "`ropewalk env` lists them");
    const auto& possible = algorithms_for(call.collective);
    if (std::find(possible.begin(), possible.end(), *wanted) != possible.end())
      question.forced = *wanted;
  }
  question.mapped = transports_.size() == 1 && transports_[0] == shm_.get();
  // From what all ranks know alike: the knob, not which transports this rank happens to use.
  if (knobs_.transport == "tcp") question.cost.intra = kTcpLink;
  question.slice_bytes_max = slice_bytes();
  Choice choice = choose(question);
  choice.slice_bytes = std::max(choice.slice_bytes / 64 * 64, kEagerBytesMax);
  return choice;
}

std::shared_ptr<Operation> Communicator::Impl::prepare_one(const Call& call) {
  if (call.collective == Collective::send || call.collective == Collective::recv) {
    Schedule schedule{size(), rank(), 1, 0, {}, {}};
    schedule.steps.push_back(
        {call.collective == Collective::send ? StepOp::send_copy : StepOp::recv_copy, 0,
         call.root});
    return driver_->locked(
        [&] { return engine_->prepare(call, schedule, Algorithm::automatic, slice_bytes()); });
  }
  const Choice choice = choose_for(call);
  const ScheduleKey key{call.collective, choice.algorithm, size(), call.root, hosts_};
  const Schedule schedule = build_schedule(key, rank());
  return driver_->locked(
      [&] { return engine_->prepare(call, schedule, choice.algorithm, choice.slice_bytes); });
}

std::shared_ptr<Operation> Communicator::Impl::prepare_group(std::span<const Call> calls) {
  auto group = std::make_shared<Operation>();
  std::vector<bool> taken(calls.size(), false);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (taken[i]) continue;
    std::vector<const Call*> alike = {&calls[i]};
    for (size_t j = i + 1; j < calls.size(); ++j)
      if (!taken[j] && fuses_with(calls[i], calls[j])) {
        taken[j] = true;
        alike.push_back(&calls[j]);
      }
    group->children.push_back(alike.size() > 1 ? prepare_fused(alike) : prepare_one(calls[i]));
  }
  return group;
}

std::shared_ptr<Operation> Communicator::Impl::prepare_fused(
    const std::vector<const Call*>& calls) {
  Call fused = *calls[0];
  fused.count = 0;
  for (const Call* call : calls) fused.count += call->count;
  auto packed = allocate(fused.count * size_of(fused.type));
  fused.in = fused.out = packed->data();
  auto op = prepare_one(fused);
  op->packed = packed;
  std::byte* at = packed->data();
  for (const Call* call : calls) {
    const size_t bytes = call->count * size_of(call->type);
    op->fragments.push_back(
        {static_cast<const std::byte*>(call->in), static_cast<std::byte*>(call->out), at, bytes});
    at += bytes;
  }
  return op;
}

}  // namespace ropewalk
