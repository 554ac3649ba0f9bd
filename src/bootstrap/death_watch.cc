#include "bootstrap/death_watch.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <climits>

#include "base/log.h"
#include "base/start_thread.h"
#include "base/text.h"

namespace ropewalk::bootstrap {
namespace {

constexpr const char* kWatching = "death watch";

// Of the word of a mutex, as the kernel has it (linux/Documentation/locking/robust-futex-ABI.rst).
bool is_held(uint32_t state) {
  return (state & FUTEX_TID_MASK) != 0;
}
bool is_of_dead(uint32_t state) {
  return (state & FUTEX_OWNER_DIED) != 0;
}

void futex(uint32_t* word, int operation, uint32_t value, const timespec* timeout = nullptr) {
  syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

/// The kernel wakes one of those who sleep at a dead process's word, and that may be a thread of
/// the dead neighbour in between, which cannot tell anybody: who has passed over one looks again.
constexpr timespec kLookAgainAfter{.tv_sec = 0, .tv_nsec = 100'000'000};

/// A memory file of so many bytes that nobody can shrink under its mappings.
bool is_memory_file(int fd, uint64_t inode, size_t bytes) {
  struct stat file {};
  return fstat(fd, &file) == 0 && file.st_ino == inode &&
         file.st_size == static_cast<off_t>(bytes) &&
         (fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW)) != 0;
}

}  // namespace

/// One for each rank of the job, by its number; pages of ranks of other hosts are not touched.
struct alignas(64) DeathWatch::Slot {
  pthread_mutex_t mutex;
  uint32_t has_entered;  // for ever
  // The failure that it knows; the code is written last.
  int32_t failed_peer;
  uint32_t failed_epoch;
  ErrorCode failed_code;
};

DeathWatch::DeathWatch(int size)
    : size_(size), noted_(static_cast<size_t>(size)), passed_(static_cast<size_t>(size)) {
  deaths_.reserve(static_cast<size_t>(size));
  static_assert(sizeof(Slot) == 64);
  try {
    file_ = create_memfd(kWatching, "ropewalk-deaths", round_up(bytes(), page_bytes()));
  } catch (const Error& error) {
    log(LogLevel::info, -1, "deaths will be noticed later: {}", error.what());
  }
}

DeathWatch::~DeathWatch() {
  assert(rank_ < 0 && !thread_.joinable());
}

std::string DeathWatch::address() const {
  struct stat file {};
  if (!file_ || fstat(file_.get(), &file) != 0) return {};
  return fmt::format("{}:{}", file_.get(), file.st_ino);
}

/// Behind the slots: what HostAgreements has.
size_t DeathWatch::bytes() const {
  return static_cast<size_t>(size_) * sizeof(Slot) + HostAgreements::bytes(size_);
}

DeathWatch::Slot& DeathWatch::slot(int rank) const {
  return reinterpret_cast<Slot*>(mapping_.base())[rank];
}

uint32_t* DeathWatch::word(int rank) const {
  return reinterpret_cast<uint32_t*>(&slot(rank).mutex.__data.__lock);
}

bool DeathWatch::is_held_by(int rank) const {
  return is_held(state(rank));
}

void DeathWatch::enter(const PeerTable& table, int rank) {
  assert(rank_ < 0 && table.size() == static_cast<size_t>(size_));
  const auto at = [&](int other) -> const PeerRecord& { return table[static_cast<size_t>(other)]; };
  int lowest = rank;
  for (int i = 1; i < size_; ++i) {
    const int other = (rank + i) % size_;
    if (at(other).host_id != at(rank).host_id) continue;
    others_.push_back(other);
    lowest = std::min(lowest, other);
  }
  if (others_.empty() || !map(at(lowest))) return file_.reset();
  rank_ = rank;
  if (take_mutex())
    own_ = &slot(rank_);
  else
    rank_ = -1;
  if (lowest != rank) file_.reset();
}

bool DeathWatch::map(const PeerRecord& owner) {
  const auto info = owner.transport_infos.find(kInfo);
  if (info == owner.transport_infos.end()) return false;
  const auto words = split(info->second, ':');
  const auto fd = parse_number<int>(words[0]);
  const auto inode = parse_number<uint64_t>(words.back());
  if (words.size() != 2 || !fd || !inode) return false;
  // Ranks may be threads of one process; /proc/self works also where /proc renumbers pids.
  const std::string process = owner.pid == getpid() ? "self" : std::to_string(owner.pid);
  const std::string path = fmt::format("/proc/{}/fd/{}", process, *fd);
  const UniqueFd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  const size_t file_bytes = round_up(bytes(), page_bytes());
  if (!opened || !is_memory_file(opened.get(), *inode, file_bytes)) return false;
  try {
    mapping_ = SharedMapping(kWatching, opened.get(), 0, file_bytes);
  } catch (const Error&) {
    return false;
  }
  return true;
}

bool DeathWatch::take_mutex() {
  auto* mutex = &slot(rank_).mutex;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  // It is nobody else's; to wait for it would give locks an order in which it is never taken again.
  const bool taken =
      pthread_mutex_init(mutex, &attributes) == 0 && pthread_mutex_trylock(mutex) == 0;
  pthread_mutexattr_destroy(&attributes);
  std::atomic_ref(slot(rank_).has_entered) = taken;
  return taken;
}

void DeathWatch::begin() {
  file_.reset();
  if (rank_ < 0) return;
  const bool all_are_here = others_.size() + 1 == static_cast<size_t>(size_) &&
                            std::ranges::all_of(others_, [this](int other) {
                              return std::atomic_ref(slot(other).has_entered) != 0;
                            });
  if (all_are_here && HostAgreements::bytes(size_) > 0)
    agreements_.emplace(mapping_.base() + static_cast<size_t>(size_) * sizeof(Slot), size_, rank_,
                        [this](int rank) { return is_held_by(rank); });
  try {
    thread_ = start_thread(kWatching, "ropewalk-deaths", [this] { watch(); });
  } catch (const Error& error) {
    log(LogLevel::info, rank_, "deaths will be noticed later: {}", error.what());
  }
}

void DeathWatch::leave() {
  if (rank_ < 0) return;
  stop_ = true;
  if (const int charge = charge_; charge >= 0) wake(charge);
  if (thread_.joinable()) thread_.join();
  pthread_mutex_unlock(&slot(rank_).mutex);
  if (agreements_) agreements_->close();
  rank_ = -1;
}

std::vector<int> DeathWatch::take_deaths() {
  event_.clear();
  const std::lock_guard lock(mutex_);
  std::vector<int> taken = deaths_;
  deaths_.clear();
  return taken;
}

void DeathWatch::note_failure(const Failure& failure, uint32_t epoch) {
  assert(failure.code != ErrorCode::ok);
  Slot* const own = own_;
  if (own == nullptr) return;
  std::atomic_ref(own->failed_code) = ErrorCode::ok;
  std::atomic_ref(own->failed_peer) = failure.peer;
  std::atomic_ref(own->failed_epoch) = epoch;
  std::atomic_ref(own->failed_code) = failure.code;
}

std::optional<Failure> DeathWatch::failure_known_to(int rank, uint32_t epoch) const {
  if (own_ == nullptr || std::ranges::count(others_, rank) == 0 || is_held_by(rank)) return {};
  Slot& of_rank = slot(rank);
  const ErrorCode code = std::atomic_ref(of_rank.failed_code);
  const int peer = std::atomic_ref(of_rank.failed_peer);
  if (code == ErrorCode::ok || std::atomic_ref(of_rank.failed_epoch) != epoch) return {};
  if (code > ErrorCode::no_quorum || peer < -1 || peer >= size_) return {};
  return Failure{code, {}, {}, {}, rank, peer};
}

// ---- The watch thread ----

void DeathWatch::watch() {
  for (;;) {
    const int charge = find_charge();
    note_deaths();
    if (charge < 0) return;
    charge_ = charge;
    // Whoever has news takes the mark away that this sets, and then wakes: what happens from here
    // on ends the wait, or is seen.
    uint32_t value = 0;
    const bool is_there = prepare_wait(charge, value);
    if (stop_) return;
    note_deaths();
    if (is_there) futex(word(charge), FUTEX_WAIT, value, has_passed_ ? &kLookAgainAfter : nullptr);
    if (!is_held(state(charge))) wake(charge);  // of several who sleep there one is woken
  }
}

/// The next in the ring that lives; -1: none. Of those who have died before it, whom nobody else
/// watches, the others hear.
int DeathWatch::find_charge() {
  bool is_new = false;
  int charge = -1;
  for (const int other : others_) {
    const uint32_t value = state(other);
    if (is_held(value)) {
      charge = other;
      break;
    }
    if (!is_of_dead(value) || passed_[static_cast<size_t>(other)]) continue;
    passed_[static_cast<size_t>(other)] = has_passed_ = is_new = true;
  }
  if (is_new) wake_all();
  return charge;
}

/// The kernel, and who unlocks, wake only where the word says that somebody waits. False where the
/// rank lives no more.
bool DeathWatch::prepare_wait(int charge, uint32_t& value) {
  value = state(charge);
  while (is_held(value) && (value & FUTEX_WAITERS) == 0)
    if (state(charge).compare_exchange_weak(value, value | FUTEX_WAITERS)) value |= FUTEX_WAITERS;
  return is_held(value);
}

void DeathWatch::note_deaths() {
  for (const int other : others_) {
    if (!is_of_dead(state(other)) || noted_[static_cast<size_t>(other)]) continue;
    noted_[static_cast<size_t>(other)] = true;
    const std::lock_guard lock(mutex_);
    deaths_.push_back(other);
    event_.set();
    if (agreements_) agreements_->wake();
  }
}

void DeathWatch::wake_all() {
  wake(rank_);
  for (const int other : others_) wake(other);
}

/// Those who sleep there, or are about to.
void DeathWatch::wake(int rank) const {
  state(rank).fetch_and(~uint32_t{FUTEX_WAITERS});
  futex(word(rank), FUTEX_WAKE, INT_MAX);
}

}  // namespace ropewalk::bootstrap
