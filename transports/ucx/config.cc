#include "transports/ucx/config.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "ropewalk/status.h"

namespace ropewalk::ucx {

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
  check(lib().ucp_config_read(nullptr, nullptr, &config_), "ucp_config_read");
}

void Config::prefer(const std::string& transport, const std::string& setting,
                    const std::string& value) {
  const std::string name = transport + "_" + setting;
  if (std::getenv(("UCX_" + name).c_str()) != nullptr) return;
  unsigned major = 0, minor = 0, release = 0;
  lib().ucp_get_version(&major, &minor, &release);
  const bool with_prefix = major > 1 || minor >= 17;
  // A wish: what comes of it does not matter.
  lib().ucp_config_modify(config_, (with_prefix ? name : setting).c_str(), value.c_str());
}

// UCX tells its settings in print only.
std::string Config::value_of(const std::string& variable) const {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  lib().ucp_config_print(config_, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
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
