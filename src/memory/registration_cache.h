// Registrations of users' plain memory, kept for the next time.
//
// Registering pins pages, which costs more than many a transfer. A registration is kept after its
// last user has let go, until others need its place or the process unmaps, moves or drops any of
// its pages (unmap_watch.h): then it is never given out again, and ends when nobody uses it and
// the cache is called next. Where pages cannot be watched nothing is kept: each `acquire`
// registers, and the end of the use deregisters.
#pragma once

#include <functional>

#include "memory/unmap_watch.h"
#include "ropewalk/transport.h"

namespace ropewalk {

/// What a transport makes of pages; deregisters them at its end.
class PinnedPages {
 public:
  virtual ~PinnedPages() = default;
};

/// Of registrations that are kept, in use or not. What is more is not kept.
struct RegistrationLimits {
  size_t registrations_max = 1024;
  size_t bytes_max = size_t{64} << 30;
};

/// Threads: any.
class RegistrationCache final : private UnmapWatch::Listener {
 public:
  /// Registers whole pages. Called without locks, by several threads at a time, and may throw
  /// Error; after Error(exhausted) it is called again where something could be given up.
  using Pin = std::function<std::unique_ptr<PinnedPages>(const Region& pages)>;

  explicit RegistrationCache(Pin pin, RegistrationLimits limits = {});
  /// All uses must have ended.
  ~RegistrationCache() override;
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  class Use;
  /// Throws what Pin throws. A `source_only` region may be served by a registration that peers can
  /// write, not the other way round.
  std::unique_ptr<Use> acquire(const Region& region);

  /// Empty, or why nothing is kept, and what to do about it.
  const std::string& refusal() const { return watch_->refusal(); }
  const std::string& advice() const { return watch_->advice(); }

  struct Counts {
    size_t hits = 0, misses = 0;  // ever
    size_t kept = 0;              // now
    size_t kept_bytes = 0;
  };
  Counts counts() const;

 private:
  struct Entry;
  enum class State : uint8_t { free, pinning, ready };

  void forget(const PageRange& gone) noexcept override;
  Entry* find(const PageRange& range, bool source_only, bool& certain);
  std::unique_ptr<Use> pin_and_keep(const Region& pages, Entry& entry);
  std::unique_ptr<PinnedPages> pin(const Region& pages);
  Entry* reserve(const PageRange& range, bool source_only);
  bool end_one(bool only_gone);
  bool fits(size_t bytes) const;

  const Pin pin_;
  const RegistrationLimits limits_;
  const std::shared_ptr<UnmapWatch> watch_;
  // Under the watch's mutex, and so without allocation:
  std::vector<Entry> entries_;
  size_t ticks_ = 0;  // of the clock by which the least recently used is found
  Counts counts_;
};

/// One use of registered pages; ends with the object, which must not outlive the cache.
class RegistrationCache::Use {
 public:
  Use(RegistrationCache& cache, Entry& entry);
  Use(const Region& pages, std::unique_ptr<PinnedPages> own);
  ~Use();

  /// The pages that are registered: those asked for, and perhaps more around them.
  const Region& pages() const { return pages_; }
  PinnedPages& pinned() const { return *pinned_; }
  /// As MemoryRegistration::current. Costs a lock and a system call.
  bool current() const;

 private:
  RegistrationCache* cache_ = nullptr;
  Entry* entry_ = nullptr;            // where kept
  std::unique_ptr<PinnedPages> own_;  // else
  PinnedPages* pinned_ = nullptr;
  Region pages_;
};

}  // namespace ropewalk
