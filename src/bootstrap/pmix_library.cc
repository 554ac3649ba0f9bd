#include "bootstrap/pmix_library.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shared_library.h"

namespace ropewalk::bootstrap::pmix {
namespace {

/// 0: it is not to be seen.
pid_t parent_of(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  pid_t parent = 0;
  for (std::string word; status >> word;)
    if (word == "PPid:" && status >> parent) break;
  return parent;
}

/// The launcher's, of just its version, where this process may look at what the launcher has
/// mapped: its parent, or that of the shells between; or else the system's. MPI may have loaded
/// one, which is taken before any other.
std::vector<std::string> library_names() {
  const std::string name = "libpmix.so.2";
  for (pid_t process = ::getppid(); process > 0; process = parent_of(process)) {
    std::ifstream maps(fmt::format("/proc/{}/maps", process));
    for (std::string line; std::getline(maps, line);) {
      const size_t path = line.find('/');
      if (path != std::string::npos && line.find('/' + name) != std::string::npos)
        return {line.substr(path), name};
    }
  }
  return {name};
}

}  // namespace

void fail(ErrorCode code, std::string reason) {
  throw Error(code, "pmix", std::move(reason),
              "set ROPEWALK_COORDINATOR=host:port on every rank, or start the ranks with "
              "`ropewalk run`");
}

Value flag() {
  Value value(kTypeBool);
  value.flag = true;
  return value;
}

Info::Info(const char* name, Value what) : value(what) {
  std::strncpy(key, name, sizeof key - 1);
}

Info time_limit(std::chrono::nanoseconds timeout) {
  Value limit(kTypeInt);
  limit.integer = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(timeout).count());
  return {"pmix.timeout", limit};
}

Library::Library() {
  SharedLibrary library(library_names());
  library.find("PMIx_Init", init);
  library.find("PMIx_Finalize", finalize);
  library.find("PMIx_Put", put);
  library.find("PMIx_Commit", commit);
  library.find("PMIx_Fence_nb", fence);
  library.find("PMIx_Get", get_value);
  library.find("PMIx_Get_nb", get_nb);
  library.find("PMIx_Register_event_handler", register_handler);
  library.find("PMIx_Deregister_event_handler", deregister_handler);
  library.find("PMIx_Notify_event", notify);
  library.find("PMIx_Error_string", error_string);
  library.find("PMIx_Get_version", version);
  if (!library.missing().empty())
    throw Error(ErrorCode::unavailable, "pmix",
                fmt::format("the launcher speaks PMIx (PMIX_NAMESPACE, PMIX_RANK), and its library "
                            "cannot be loaded: {}",
                            library.missing()),
                "install libpmix2, or have LD_LIBRARY_PATH name its folder, or set "
                "ROPEWALK_COORDINATOR=host:port on every rank");
}

Value* Library::get(const Proc& of, const char* key, std::chrono::nanoseconds timeout) const {
  const Info limit = time_limit(timeout);
  Value* value = nullptr;
  check(fmt::format("PMIx_Get of {}", key).c_str(), get_value(&of, key, &limit, 1, &value));
  return value;
}

void Library::check(const char* call, Status status) const {
  if (status != kSuccess)
    fail(ErrorCode::unavailable, fmt::format("the launcher's PMIx answers {} with {} ({})", call,
                                             error_string(status), status));
}

/// Of "OpenPMIx 4.2.2 (PMIx Standard: 4.1, ...)", or "PMIx 3.1.5rc4".
int Library::major_version() const {
  const std::string_view text = version();
  const size_t digit = text.find_first_of("0123456789");
  return digit == std::string_view::npos ? 0 : std::atoi(text.data() + digit);
}

Proc Library::everyone() const {
  Proc proc = own;
  proc.rank = kRankWildcard;
  return proc;
}

namespace {

/// `fill` stores what it has brought.
template <class Fill>
void end(Status status, void* owner, Fill&& fill) {
  const std::unique_ptr<std::shared_ptr<PendingCall>> pending(
      static_cast<std::shared_ptr<PendingCall>*>(owner));
  PendingCall& call = **pending;
  const std::lock_guard lock(call.mutex);
  fill(call);
  call.status = status;
  call.changed.notify_all();
}

}  // namespace

void PendingCall::on_end(Status status, void* owner) {
  end(status, owner, [](PendingCall&) {});
}

void PendingCall::on_value(Status status, const Value* value, void* owner) {
  end(status, owner, [&](PendingCall& call) {
    const bool is_text = status == kSuccess && value != nullptr && value->type == kTypeString;
    if (is_text && value->string != nullptr) call.text = value->string;
  });
}

void PendingCall::on_registered(Status status, size_t handler, void* owner) {
  end(status, owner, [&](PendingCall& call) { call.handler = handler; });
}

bool PendingCall::wait(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, timeout, [this] { return status.has_value(); });
}

}  // namespace ropewalk::bootstrap::pmix
