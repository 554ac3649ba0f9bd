#include "transports/ucx/library.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <cstdlib>
#include <string>

#include "ropewalk/status.h"

namespace ropewalk::ucx {
namespace {

[[noreturn]] void fail() {
  const char* reason = dlerror();
  throw Error(
      ErrorCode::unavailable, "ucx",
      std::string("UCX cannot be loaded: ") + (reason != nullptr ? reason : "no reason given"),
      "sudo apt-get install libucx0");
}

void* open(const char* name) {
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail();
  return library;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* address = dlsym(library, name);
  if (address == nullptr) fail();
  function = reinterpret_cast<Function>(address);
}

/// Puts the signal handlers back that loading UCX replaces: a crash of the program is the program's
/// to tell. Not where the user asks UCX for its own.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeptSignalHandlers() {
    if (std::getenv("UCX_HANDLE_ERRORS") != nullptr) return;
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;
  KeptSignalHandlers& operator=(const KeptSignalHandlers&) = delete;

 private:
  /// UCX_ERROR_SIGNALS and UCX_DEBUG_SIGNO may name these, and do so by default.
  static constexpr std::array kSignals = {SIGILL,  SIGSEGV, SIGBUS,  SIGFPE, SIGABRT,
                                          SIGTRAP, SIGHUP,  SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace

Library load() {
  const KeptSignalHandlers kept;
  Library loaded;
  void* const ucp = open("libucp.so.0");
  void* const uct = open("libuct.so.0");
  void* const ucs = open("libucs.so.0");
#define ROPEWALK_FIND_UCP(name) find(ucp, #name, loaded.name);
#define ROPEWALK_FIND_UCT(name) find(uct, #name, loaded.name);
#define ROPEWALK_FIND_UCS(name) find(ucs, #name, loaded.name);
  ROPEWALK_UCP_FUNCTIONS(ROPEWALK_FIND_UCP)
  ROPEWALK_UCT_FUNCTIONS(ROPEWALK_FIND_UCT)
  ROPEWALK_UCS_FUNCTIONS(ROPEWALK_FIND_UCS)
  return loaded;
}

}  // namespace ropewalk::ucx
