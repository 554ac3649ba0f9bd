#include "channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "operations.h"
#include "ropewalk/rendezvous.h"
#include "types.h"

namespace ropewalk::mpi {
namespace {

// Of what goes in, and of what comes out: staged in any case; and from memory that is not
// registered, where two copies cost less than windows do.
constexpr size_t kStageBytes = 16 << 10;
constexpr size_t kStageBytesMax = 512 << 10;
constexpr size_t kIdBytesMax = 4096;
constexpr std::chrono::hours kForever{24};  // as long as Ropewalk waits: an MPI sets no deadline
constexpr std::chrono::minutes kJoinTimeout{2};

/// A channel that a thread frees: other ranks may still be in a call.
struct Leaving {
  std::thread thread;
  std::atomic<bool> is_over{false};
};

/// What this process has, between MPI_Init and MPI_Finalize. Lives for ever: a program may exit
/// without the latter.
struct State {
  std::unique_ptr<Communicator> communicator;
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Comm self{};
  Channel* world = nullptr;  // of MPI_COMM_WORLD
  std::mutex mutex;          // guards what follows
  std::set<Channel*> channels;
  std::list<Leaving> leaving;
};
State& state = *new State;

MPI_Comm comm_world;

bool all_agree(bool own, MPI_Comm comm) {
  int mine = own ? 1 : 0, least = 0;
  pmpi.Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, comm);
  return least == 1;
}

void complain(const char* what, const std::exception& error) {
  int rank = 0;
  pmpi.Comm_rank(comm_world, &rank);
  fmt::print(stderr, "ropewalk: MPI rank {}: {}, so the MPI does this itself: {}\n", rank, what,
             error.what());
}

// ---- Of the whole job ----

std::unique_ptr<Communicator> join(int rank, int size) {
  Options common;
  common.elastic = false;  // an MPI's ranks are there from the start
  if (getenv("ROPEWALK_TIMEOUT") == nullptr) common.timeout = kForever;
  if (getenv("ROPEWALK_JOIN_TIMEOUT") == nullptr) common.join_timeout = kJoinTimeout;
  std::optional<Rendezvous> rendezvous;
  std::array<char, kIdBytesMax> id{};
  std::optional<Error> failed;
  if (rank == 0) try {
      rendezvous.emplace(common);
      rendezvous->unique_id().copy(id.data(), id.size() - 1);
    } catch (const Error& error) {
      failed = error;  // the others learn it by an empty id
    }
  pmpi.Bcast(id.data(), static_cast<int>(id.size()), MPI_CHAR, 0, comm_world);
  if (failed) throw Error(*failed);
  if (id[0] == '\0') return nullptr;
  return Communicator::create(rank == 0 ? rendezvous->options(0, size, common)
                                        : Rendezvous::options(id.data(), rank, size, common));
}

// ---- Of one communicator ----

bool is_known(Channel* channel) {
  std::lock_guard lock(state.mutex);
  return state.channels.contains(channel);
}

int delete_attribute(MPI_Comm, int, void* value, void*) {
  const auto channel = static_cast<Channel*>(value);  // MPI_Finalize may have had it
  if (is_known(channel) && channel->retire()) free_channel(channel);
  return MPI_SUCCESS;
}

int copy_nothing(MPI_Comm, int, void*, void*, void*, int* copied) {
  *copied = 0;
  return MPI_SUCCESS;
}

/// By rank in `comm`: the rank in MPI_COMM_WORLD; MPI_UNDEFINED of processes that are not in it.
std::vector<int> world_ranks(MPI_Comm comm, int size) {
  std::vector<int> own(static_cast<size_t>(size)), in_world(own.size());
  std::iota(own.begin(), own.end(), 0);
  MPI_Group group, world;
  pmpi.Comm_group(comm, &group);
  pmpi.Comm_group(comm_world, &world);
  pmpi.Group_translate_ranks(group, size, own.data(), world, in_world.data());
  pmpi.Group_free(&group);
  pmpi.Group_free(&world);
  return in_world;
}

/// Who cannot go on while others exchange texts tells them so: each step has an agreement before
/// it, and what may fail comes before that.
class Agreement {
 public:
  explicit Agreement(MPI_Comm comm) : comm_(comm) {}

  /// Each rank's text. Throws Error(aborted), std::bad_alloc.
  std::vector<std::string> exchange(const std::string& own, int size) {
    const auto ranks = static_cast<size_t>(size);
    std::vector<int> lengths(ranks), at(ranks);
    agree();
    int length = static_cast<int>(own.size());
    pmpi.Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_);
    std::exclusive_scan(lengths.begin(), lengths.end(), at.begin(), 0);
    std::string all(static_cast<size_t>(at.back() + lengths.back()), '\0');
    agree();
    pmpi.Allgatherv(own.data(), length, MPI_CHAR, all.data(), lengths.data(), at.data(), MPI_CHAR,
                    comm_);
    std::vector<std::string> texts;
    for (size_t r = 0; r < ranks; ++r)
      texts.push_back(all.substr(static_cast<size_t>(at[r]), static_cast<size_t>(lengths[r])));
    return texts;
  }
  /// Whether all can. Once some rank cannot, none asks again.
  bool reach(bool own) { return is_reached_ = is_reached_ && all_agree(own, comm_); }

 private:
  void agree() {
    if (!reach(true)) throw Error(ErrorCode::aborted, "link", "another rank cannot go on");
  }

  const MPI_Comm comm_;
  bool is_reached_ = true;
};

/// Whether the job has lost processes, and none of `comm`.
bool is_of_others(const Failure& failure, MPI_Comm comm) {
  if (failure.code != ErrorCode::peer_lost || failure.peer < 0) return false;
  int size = 0;
  pmpi.Comm_size(comm, &size);
  const std::vector<int> members = world_ranks(comm, size);
  const auto is_member = [&](int rank) { return std::ranges::count(members, rank) > 0; };
  return !is_member(failure.peer) && std::ranges::none_of(failure.peers, is_member);
}

constexpr const char* kNotLinked = "a communicator's ranks could not be linked";

std::unique_ptr<Channel> open_channel(Communicator& communicator, MPI_Comm comm) {
  std::unique_ptr<Channel> channel;
  try {
    channel = std::make_unique<Channel>(communicator);
  } catch (const std::exception& error) {  // also std::bad_alloc: the others must not wait
    communicator.abort(error.what());
    complain(kNotLinked, error);
  }
  if (!all_agree(channel != nullptr, comm)) return std::make_unique<Channel>(Left::unavailable);
  return channel;
}

std::unique_ptr<Channel> link_ranks(MPI_Comm comm, int size) {
  std::unique_ptr<Communicator> group;
  bool is_outside = false;
  Agreement agreement(comm);
  try {
    const std::vector<int> ranks = world_ranks(comm, size);
    is_outside = std::ranges::count(ranks, MPI_UNDEFINED) > 0;
    if (!is_outside)
      group = state.communicator->create_group(
          ranks, [&](const std::string& own) { return agreement.exchange(own, size); });
  } catch (const std::exception& error) {
    complain(kNotLinked, error);
  }
  if (!agreement.reach(is_outside || group != nullptr))
    return std::make_unique<Channel>(Left::unavailable);
  if (is_outside) return std::make_unique<Channel>(Left::outside);
  auto channel = open_channel(*group, comm);
  if (channel->left() == Left::none) channel->own(std::move(group));
  return channel;
}

std::unique_ptr<Channel> make_channel(MPI_Comm comm) {
  int inter = 0, size = 0;
  if (pmpi.Comm_test_inter(comm, &inter) != MPI_SUCCESS) return nullptr;
  if (inter != 0) return std::make_unique<Channel>(Left::inter);
  pmpi.Comm_size(comm, &size);
  if (size == 1) return std::make_unique<Channel>(Left::one_rank);
  return comm == comm_world ? open_channel(*state.communicator, comm) : link_ranks(comm, size);
}

}  // namespace

Channel::Channel(Communicator& communicator)
    : left_(Left::none), communicator_(&communicator), started_(communicator.split(0)) {
  stage_ = communicator.allocate<uint8_t>(2 * kStageBytes);
}

void Channel::run(Call&& call) {
  static const std::function<void()> meanwhile = progress_mpi;
  const Extent extent = extent_of(call, rank(), size());
  const size_t in_bytes = extent.in * size_of(call.type),
               out_bytes = extent.out * size_of(call.type);
  const bool missing =
      (in_bytes > 0 && call.in == nullptr) || (out_bytes > 0 && call.out == nullptr);
  const auto is_plain = [](size_t bytes, const void* data) {
    return bytes > 0 && !is_registered(data);
  };
  const size_t bytes = std::max(in_bytes, out_bytes);
  const bool stages =
      bytes <= kStageBytes ||
      (bytes <= kStageBytesMax && (is_plain(in_bytes, call.in) || is_plain(out_bytes, call.out)));
  if (stages && !missing) return run_staged(call, in_bytes, out_bytes);
  communicator_->run_beside(call, meanwhile);
}

void Channel::abort(const char* why) noexcept {
  for (Communicator* const one : {communicator_, started_.get()}) try {
      one->abort(why);
    } catch (const std::exception& error) {
      print_failure(size(), error.what());
    }
}

Communicator* Channel::persistent_at(size_t index) {
  std::lock_guard lock(mutex_);
  assert(index < persistent_.size() && !persistent_[index].is_free);
  return persistent_[index].communicator.get();
}

// All ranks have made the same communicators, but may not yet have given the same ones back.
size_t Channel::acquire_persistent() {
  starts_later_calls_ = true;
  std::vector<uint8_t> are_free;
  {
    std::lock_guard lock(mutex_);
    for (const Persistent& one : persistent_) are_free.push_back(one.is_free ? 1 : 0);
  }
  are_free.push_back(1);  // one that is yet to be made
  run(Call::all_reduce(std::span(are_free), kMin));
  const auto index = static_cast<size_t>(std::ranges::find(are_free, 1) - are_free.begin());
  std::unique_ptr<Communicator> made;
  if (index + 1 == are_free.size()) made = communicator_->split(0);
  std::lock_guard lock(mutex_);
  if (made) persistent_.push_back({std::move(made)});
  persistent_[index].is_free = false;
  return index;
}

void Channel::hand_over(MPI_Comm comm) {
  if (is_lost_) return;
  const bool can = begun_ == ended_ && !starts_later_calls_;
  std::array<long, 3> own{can ? 1 : 0, ended_, -ended_}, least{};
  MPI_Errhandler handler;  // what the MPI finds wrong it says to the program's own call
  pmpi.Comm_get_errhandler(comm, &handler);
  pmpi.Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int error = pmpi.Allreduce(own.data(), least.data(), 3, MPI_LONG, MPI_MIN, comm);
  pmpi.Comm_set_errhandler(comm, handler);
  pmpi.Errhandler_free(&handler);
  is_lost_ = error == MPI_SUCCESS && (least[0] == 0 || least[1] != -least[2]);
  if (is_lost_) return;
  left_ = Left::unavailable;
  print_failure(size(), "the MPI goes on without Ropewalk, as the job has lost another rank");
}

bool Channel::release_persistent(size_t index) {
  std::lock_guard lock(mutex_);
  assert(index < persistent_.size() && !persistent_[index].is_free);
  persistent_[index].is_free = true;
  return is_retired_ && is_unused();
}

bool Channel::retire() {
  if (errors_.use_count() > 1) errors_->keep();
  std::lock_guard lock(mutex_);
  is_retired_ = true;
  return is_unused();
}

bool Channel::is_unused() const {
  return std::ranges::all_of(persistent_, &Persistent::is_free);
}

void Channel::run_staged(Call& call, size_t in_bytes, size_t out_bytes) {
  static const std::function<void()> meanwhile = progress_mpi;
  const size_t bytes = std::max(in_bytes, out_bytes);
  if (stage_.size() < 2 * bytes)
    stage_ = communicator_->allocate<uint8_t>(2 * std::bit_ceil(bytes));
  const void* const in = std::exchange(call.in, stage_.data());
  void* const staged_out = stage_.data() + (in == call.out ? 0 : stage_.size() / 2);
  void* const out = std::exchange(call.out, staged_out);
  const bool is_broadcast = call.collective == Collective::broadcast;
  if (in_bytes > 0 && !(is_broadcast && call.root != rank()))
    std::memcpy(stage_.data(), in, in_bytes);
  communicator_->run_beside(call, meanwhile);
  // The root's own buffer may be one that cannot be written.
  if (out_bytes > 0 && !(is_broadcast && call.root == rank()))
    std::memcpy(out, staged_out, out_bytes);
}

void open_session() {
  comm_world = MPI_COMM_WORLD;
  int rank = 0, size = 0;
  pmpi.Comm_rank(comm_world, &rank);
  pmpi.Comm_size(comm_world, &size);
  if (size == 1) return;
  find_types();
  agree_on_report();
  std::unique_ptr<Communicator> communicator;
  try {
    communicator = join(rank, size);
  } catch (const std::exception& error) {
    complain("the ranks could not be linked", error);
  }
  if (!all_agree(communicator != nullptr, comm_world)) return;
  pmpi.Comm_create_keyval(copy_nothing, delete_attribute, &state.keyval, nullptr);
  pmpi.Comm_dup(MPI_COMM_SELF, &state.self);
  pmpi.Comm_set_errhandler(state.self, MPI_ERRORS_RETURN);
  state.communicator = std::move(communicator);
  state.world = find_or_make_channel(comm_world);  // for nonblocking calls, too, which cannot
}

void close_session() {
  if (!state.communicator) return;
  state.world = nullptr;
  std::vector<Channel*> left;
  {
    std::lock_guard lock(state.mutex);
    left.assign(state.channels.begin(), state.channels.end());
  }
  for (Channel* channel : left) {
    forget_channel(*channel);
    free_channel(channel);
  }
  for (Leaving& one : state.leaving) one.thread.join();
  state.leaving.clear();
  state.communicator.reset();
  pmpi.Comm_free(&state.self);
}

void free_channel(Channel* channel) {
  std::lock_guard lock(state.mutex);
  state.channels.erase(channel);
  // A thread keeps its stack until it is joined.
  state.leaving.remove_if([](Leaving& one) {
    if (!one.is_over) return false;
    one.thread.join();
    return true;
  });
  Leaving& own = state.leaving.emplace_back();
  own.thread = std::thread([channel, &own] {
    delete channel;
    own.is_over = true;
  });
}

MPI_Comm own_self() {
  return state.self;
}

// Of MPI_COMM_SELF MPICH would look at nothing else.
void progress_mpi() {
  int found = 0;
  pmpi.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_world, &found, MPI_STATUS_IGNORE);
}

Communicator* session() {
  return state.communicator.get();
}

// The MPI takes a lock to find an attribute, which short calls notice.
Channel* find_channel(MPI_Comm comm) {
  if (comm == comm_world && state.world != nullptr) return state.world;
  void* value = nullptr;
  int found = 0;
  if (pmpi.Comm_get_attr(comm, state.keyval, &value, &found) != MPI_SUCCESS) return nullptr;
  return found != 0 ? static_cast<Channel*>(value) : nullptr;
}

Channel* find_or_make_channel(MPI_Comm comm) {
  if (Channel* const channel = find_channel(comm)) {
    if (channel != state.world && channel->left() == Left::none)
      if (const auto failure = state.communicator->failure();
          failure && is_of_others(*failure, comm))
        channel->hand_over(comm);
    return channel;
  }
  auto channel = make_channel(comm);
  if (!channel) return nullptr;
  channel->be_of(comm);
  {
    std::lock_guard lock(state.mutex);
    state.channels.insert(channel.get());
  }
  pmpi.Comm_set_attr(comm, state.keyval, channel.get());
  return channel.release();
}

}  // namespace ropewalk::mpi
