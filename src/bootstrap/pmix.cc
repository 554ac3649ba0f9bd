#include "bootstrap/pmix.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <vector>

#include "base/shared_library.h"

namespace ropewalk::bootstrap {
namespace pmix {

// What the standard says of types and numbers, as its version 4 fixes them for every library that
// is called libpmix.so.2.
using Status = int;
constexpr Status kSuccess = 0, kOperationSucceeded = -157;
constexpr uint32_t kRankWildcard = UINT32_MAX - 1;
constexpr uint8_t kScopeGlobal = 3;
constexpr uint16_t kTypeBool = 1, kTypeString = 3, kTypeInt = 6, kTypeUint32 = 14;
constexpr const char *kJobSize = "pmix.job.size", *kCollectData = "pmix.collect",
                     *kTimeout = "pmix.timeout";

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
    void* longest[3] = {};
  };
};

struct Info {
  Info(const char* name, Value what) : value(what) { std::strncpy(key, name, sizeof key - 1); }
  char key[512] = {};
  uint32_t flags = 0;
  Value value;
};
static_assert(sizeof(Proc) == 260 && sizeof(Value) == 32 && sizeof(Info) == 552);

using OnEnd = void (*)(Status, void*);

[[noreturn]] void fail(ErrorCode code, std::string reason) {
  throw Error(code, "pmix", std::move(reason),
              "set ROPEWALK_COORDINATOR=host:port on every rank, or start the ranks with "
              "`ropewalk run`");
}

Value flag() {
  Value value(kTypeBool);
  value.flag = true;
  return value;
}

/// The launcher's, of just its version, where this process may look at what the launcher has
/// mapped; or else the system's. MPI may have loaded one, which is taken before any other.
std::vector<std::string> library_names() {
  const std::string name = "libpmix.so.2";
  std::ifstream maps(fmt::format("/proc/{}/maps", ::getppid()));
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.find('/' + name) != std::string::npos)
      return {line.substr(path), name};
  }
  return {name};
}

/// A call that the library ends on a thread of its own, perhaps after nobody waits any more.
struct PendingCall {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Status> status;

  static void on_end(Status status, void* pending) {
    const std::unique_ptr<std::shared_ptr<PendingCall>> owner(
        static_cast<std::shared_ptr<PendingCall>*>(pending));
    const std::lock_guard lock((*owner)->mutex);
    (*owner)->status = status;
    (*owner)->changed.notify_all();
  }
};

struct Library {
  Library();

  void check(const char* call, Status status) const {
    if (status != kSuccess)
      fail(ErrorCode::unavailable, fmt::format("the launcher's PMIx answers {} with {} ({})", call,
                                               error_string(status), status));
  }
  Proc everyone() const {
    Proc proc = own;
    proc.rank = kRankWildcard;
    return proc;
  }
  /// The caller has to free it, and what it points to.
  Value* get(const Proc& of, const char* key, std::chrono::nanoseconds timeout) const;

  Proc own;
  Status (*init)(Proc*, const Info*, size_t) = nullptr;
  Status (*finalize)(const Info*, size_t) = nullptr;
  Status (*put)(uint8_t scope, const char* key, Value*) = nullptr;
  Status (*commit)() = nullptr;
  Status (*fence)(const Proc*, size_t, const Info*, size_t, OnEnd, void*) = nullptr;
  Status (*get_value)(const Proc*, const char* key, const Info*, size_t, Value**) = nullptr;
  const char* (*error_string)(Status) = nullptr;
};

Library::Library() {
  SharedLibrary library(library_names());
  library.find("PMIx_Init", init);
  library.find("PMIx_Finalize", finalize);
  library.find("PMIx_Put", put);
  library.find("PMIx_Commit", commit);
  library.find("PMIx_Fence_nb", fence);
  library.find("PMIx_Get", get_value);
  library.find("PMIx_Error_string", error_string);
  if (!library.missing().empty())
    throw Error(ErrorCode::unavailable, "pmix",
                fmt::format("the launcher speaks PMIx (PMIX_NAMESPACE, PMIX_RANK), and its library "
                            "cannot be loaded: {}",
                            library.missing()),
                "install libpmix2, or have LD_LIBRARY_PATH name its folder, or set "
                "ROPEWALK_COORDINATOR=host:port on every rank");
}

Value* Library::get(const Proc& of, const char* key, std::chrono::nanoseconds timeout) const {
  Value limit(kTypeInt);
  limit.integer = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(timeout).count());
  const Info info(kTimeout, limit);
  Value* value = nullptr;
  check(fmt::format("PMIx_Get of {}", key).c_str(), get_value(&of, key, &info, 1, &value));
  return value;
}

}  // namespace pmix

Pmix::Pmix(std::chrono::nanoseconds timeout)
    : timeout_(timeout), library_(std::make_unique<pmix::Library>()) {
  library_->check("PMIx_Init (PMIX_NAMESPACE, PMIX_RANK, PMIX_SERVER_*)",
                  library_->init(&library_->own, nullptr, 0));
}

Pmix::~Pmix() {
  if (!process_.is_forked()) library_->finalize(nullptr, 0);
}

std::string Pmix::library_path() {
  const pmix::Library library;
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(library.init), &info);
  return info.dli_fname == nullptr ? "libpmix.so.2" : info.dli_fname;
}

int Pmix::rank() const {
  return static_cast<int>(library_->own.rank);
}

int Pmix::size() {
  pmix::Value* value = library_->get(library_->everyone(), pmix::kJobSize, timeout_);
  const bool is_number = value->type == pmix::kTypeUint32;
  const uint32_t size = value->uint32;
  std::free(value);
  if (!is_number || size == 0 || size > INT32_MAX)
    pmix::fail(ErrorCode::unavailable, "the launcher's PMIx does not tell the job's size");
  return static_cast<int>(size);
}

void Pmix::put(const std::string& key, const std::string& value) {
  pmix::Value text(pmix::kTypeString);
  text.string = const_cast<char*>(value.c_str());  // it is copied
  library_->check("PMIx_Put", library_->put(pmix::kScopeGlobal, key.c_str(), &text));
  library_->check("PMIx_Commit", library_->commit());
}

std::string Pmix::get(const std::string& key) {
  pmix::Proc rank_zero = library_->own;
  rank_zero.rank = 0;
  pmix::Value* value = library_->get(rank_zero, key.c_str(), timeout_);
  const bool is_text = value->type == pmix::kTypeString && value->string != nullptr;
  const std::string text = is_text ? value->string : "";
  if (is_text) std::free(value->string);
  std::free(value);
  if (!is_text)
    pmix::fail(ErrorCode::unavailable, fmt::format("rank 0's {} is no text in PMIx", key));
  return text;
}

void Pmix::barrier() {
  const auto pending = std::make_shared<pmix::PendingCall>();
  auto* const owner = new std::shared_ptr<pmix::PendingCall>(pending);
  const pmix::Info collect(pmix::kCollectData, pmix::flag());
  const pmix::Status begun =
      library_->fence(nullptr, 0, &collect, 1, pmix::PendingCall::on_end, owner);
  if (begun != pmix::kSuccess) delete owner;  // it is not called
  if (begun == pmix::kOperationSucceeded) return;
  library_->check("PMIx_Fence_nb", begun);
  std::unique_lock lock(pending->mutex);
  if (!pending->changed.wait_for(lock, timeout_, [&] { return pending->status.has_value(); }))
    pmix::fail(
        ErrorCode::timeout,
        fmt::format("the launcher's PMIx_Fence has not ended within {:.3g} s: have all ranks "
                    "started?",
                    std::chrono::duration<double>(timeout_).count()));
  library_->check("PMIx_Fence", *pending->status);
}

}  // namespace ropewalk::bootstrap
