#include "transports/ucx/library.h"

#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/shared_library.h"
#include "ropewalk/status.h"

namespace ropewalk::ucx {
namespace {

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
  // Brings the others, libuct and libucs, with it: their functions are found, too.
  SharedLibrary library({"libucp.so.0"});
  Library loaded;
#define ROPEWALK_FIND(name) library.find(#name, loaded.name);
  ROPEWALK_UCX_FUNCTIONS(ROPEWALK_FIND)
#undef ROPEWALK_FIND
  if (!library.missing().empty())
    throw Error(ErrorCode::unavailable, "ucx", "UCX cannot be loaded: " + library.missing(),
                "sudo apt-get install libucx0");
  return loaded;
}

void check(ucs_status_t status, const char* call) {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::unavailable, "ucx", fmt::format("{}: {}", call, text_of(status)),
              "look at UCX_TLS and UCX_NET_DEVICES; `ropewalk doctor` lists what UCX has here, and "
              "UCX_LOG_LEVEL=info says more");
}

std::string text_of(ucs_status_t status) {
  return lib().ucs_status_string(status);
}

Config::Config() {
  ucp_config_t* config = nullptr;
  check(lib().ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  config_.reset(config);
}

void Config::prefer(const std::string& transport, const std::string& setting,
                    const std::string& value) {
  const std::string name = transport + "_" + setting;
  if (std::getenv(("UCX_" + name).c_str()) != nullptr) return;
  unsigned major = 0, minor = 0, release = 0;
  lib().ucp_get_version(&major, &minor, &release);
  const bool with_prefix = major > 1 || minor >= 17;
  // A wish: what comes of it does not matter.
  lib().ucp_config_modify(config_.get(), (with_prefix ? name : setting).c_str(), value.c_str());
}

// UCX tells its settings in print only.
std::string Config::value_of(const std::string& variable) const {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  lib().ucp_config_print(config_.get(), stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
  std::fclose(stream);
  const std::string all = std::string("\n") + text;
  std::free(text);
  const std::string name = "\n" + variable + "=";
  const size_t begin = all.find(name);
  if (begin == std::string::npos) return {};
  const size_t end = all.find('\n', begin + name.size());
  return all.substr(begin + name.size(), end - begin - name.size());
}

}  // namespace ropewalk::ucx
