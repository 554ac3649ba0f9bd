// What the PMIx standard says of types, numbers and functions, in its version 4. Libraries of the
// same name but of versions 2 and 3 differ in what concerns events: see `has_events`. Source:
// www.pmix.org.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "ropewalk/status.h"

namespace ropewalk::bootstrap::pmix {

using Status = int;
constexpr Status kSuccess = 0, kOperationSucceeded = -157, kPartialSuccess = -52;
constexpr uint32_t kRankWildcard = UINT32_MAX - 1;
constexpr uint8_t kScopeGlobal = 3, kRangeLocal = 2;
constexpr uint16_t kTypeBool = 1, kTypeString = 3, kTypeInt = 6, kTypeUint32 = 14, kTypeProc = 22;

struct Proc {
  char name_space[256] = {};
  uint32_t rank = 0;
};

struct Value {
  explicit Value(uint16_t of_type) : type(of_type) {}
  uint16_t type;
  union {
    bool flag;
    int integer;
    uint32_t uint32;
    char* string;
    Proc* proc;
    void* longest[3] = {};
  };
};
Value flag();

struct Info {
  Info(const char* name, Value what);
  char key[512] = {};
  uint32_t flags = 0;
  Value value;
};
static_assert(sizeof(Proc) == 260 && sizeof(Value) == 32 && sizeof(Info) == 552);

/// Of a call, in whole seconds.
Info time_limit(std::chrono::nanoseconds timeout);

using OnEnd = void (*)(Status, void*);
using OnValue = void (*)(Status, const Value*, void*);
using OnRegistered = void (*)(Status, size_t handler, void*);
using OnHandled = void (*)(Status, Info* results, size_t, OnEnd, void*, void* event);
using EventHandler = void (*)(size_t handler, Status, const Proc* source, Info*, size_t,
                              Info* results, size_t, OnHandled, void* event);

[[noreturn]] void fail(ErrorCode code, std::string reason);

/// The functions, and who this process is once `init` has said so.
struct Library {
  /// Throws Error(unavailable) where there is none.
  Library();

  void check(const char* call, Status status) const;
  /// Older ones have smaller infos (2), and functions of events without a result (2, 3).
  bool has_events() const { return major_version() >= 4; }
  /// The caller has to free it, and what it points to.
  Value* get(const Proc& of, const char* key, std::chrono::nanoseconds timeout) const;
  Proc everyone() const;
  int major_version() const;

  Proc own;
  Status (*init)(Proc*, const Info*, size_t) = nullptr;
  Status (*finalize)(const Info*, size_t) = nullptr;
  Status (*put)(uint8_t scope, const char* key, Value*) = nullptr;
  Status (*commit)() = nullptr;
  Status (*fence)(const Proc*, size_t, const Info*, size_t, OnEnd, void*) = nullptr;
  Status (*get_value)(const Proc*, const char* key, const Info*, size_t, Value**) = nullptr;
  Status (*get_nb)(const Proc*, const char* key, const Info*, size_t, OnValue, void*) = nullptr;
  Status (*register_handler)(const Status*, size_t, const Info*, size_t, EventHandler, OnRegistered,
                             void*) = nullptr;
  Status (*deregister_handler)(size_t, OnEnd, void*) = nullptr;
  Status (*notify)(Status, const Proc* source, uint8_t range, const Info*, size_t, OnEnd,
                   void*) = nullptr;
  const char* (*error_string)(Status) = nullptr;
  const char* (*version)() = nullptr;
};

/// A call that the library ends on a thread of its own, perhaps after nobody waits any more.
struct PendingCall {
  /// What `call(owner)` answers. Where that is success, the library owes one of the functions below
  /// with this owner.
  template <class Call>
  static Status begin(const std::shared_ptr<PendingCall>& pending, Call&& call) {
    auto owner = std::make_unique<std::shared_ptr<PendingCall>>(pending);
    const Status begun = call(static_cast<void*>(owner.get()));
    if (begun == kSuccess) std::ignore = owner.release();
    return begun;
  }
  static void on_end(Status status, void* owner);
  static void on_value(Status status, const Value* value, void* owner);
  static void on_registered(Status status, size_t handler, void* owner);

  /// Whether it has ended in time.
  bool wait(std::chrono::nanoseconds timeout);

  // Of a PMIx_Get_nb: the library keeps the pointers until it ends the call.
  Proc of;
  std::string key;
  std::optional<Info> limit;

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Status> status;     // guarded by mutex
  size_t handler = 0;               // of a registration; constant once there is a status
  std::optional<std::string> text;  // of a value that is text; likewise
};

}  // namespace ropewalk::bootstrap::pmix
