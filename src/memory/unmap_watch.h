// Tells when this process unmaps, moves or drops pages (munmap, mremap, brk, MADV_DONTNEED,
// MADV_FREE, MADV_REMOVE), whoever does it, so that what is known of such pages can be forgotten.
//
// How: a userfaultfd, in which ranges are registered for write protection without protecting
// anything, so that no fault ever happens. A thread that unmaps waits inside the kernel until its
// event has been read. What a reader does between reading and being done therefore happens under
// `mutex`, and that has two consequences:
//
// - Who holds `mutex` must not allocate, free, or wait for another lock. The thread that unmaps may
//   be in free() and hold a lock of the allocator; it waits for the reader, who waits for `mutex`.
// - An unmapping has happened before its event can be read, and another thread may have been given
//   the same addresses meanwhile. Nothing that is known of pages is certain before `settled`.
//
// Watching splits mappings where ranges end: mremap of one that is watched in part is refused, as
// after mprotect of a part; realloc then copies.
//
// Not seen: a file that is cut or punched while it is mapped, here or in another process. What is
// dropped by MADV_DONTNEED is forgotten just before it goes; who uses the pages in that moment must
// not count on them afterwards.
#pragma once

#include <memory>
#include <mutex>
#include <thread>

#include "memory/memfd.h"

namespace ropewalk {

class UnmapWatch {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    /// Under the watch's mutex, on any thread; see above for what is forbidden. `gone` may be no
    /// range of this listener.
    virtual void forget(const PageRange& gone) noexcept = 0;

   private:
    friend class UnmapWatch;
    Listener* next_ = nullptr;
  };

  /// The watch of this process: memory can be in one userfaultfd only. Ends with its last owner.
  /// Where the kernel refuses it is there, too, but watches nothing. Throws Error(exhausted).
  static std::shared_ptr<UnmapWatch> of_process();
  ~UnmapWatch();

  /// Empty where it works; else why not, and what to do about it.
  const std::string& refusal() const { return refusal_; }
  const std::string& advice() const { return advice_; }

  void add(Listener& listener);
  void remove(Listener& listener);

  /// From now on listeners learn what happens to `range`. False where it cannot be watched: files,
  /// memory in somebody else's userfaultfd, or too many mappings. It stays watched until it is
  /// unmapped: others may rely on it. Not under the mutex.
  bool watch(const PageRange& range);

  /// Guards what listeners know.
  std::mutex& mutex() { return mutex_; }
  /// Under the mutex: true when listeners know of everything that was unmapped so far. Else try
  /// again; it takes as long as a thread needs to return from the kernel.
  bool settled() noexcept;

 private:
  UnmapWatch();
  void open();
  void run();
  /// Under the mutex: reads what has happened, and tells.
  void take_events() noexcept;

  const int pid_;
  std::string refusal_, advice_;
  UniqueFd fd_;
  UniqueFd stop_;
  std::mutex mutex_;  // guards all below
  Listener* listeners_ = nullptr;
  std::thread thread_;
};

}  // namespace ropewalk
