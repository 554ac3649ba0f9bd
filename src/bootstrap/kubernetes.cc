#include "bootstrap/kubernetes.h"

#include <fmt/format.h>

#include "bootstrap/net.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {
namespace {

constexpr uint16_t kPort = 20000;

[[noreturn]] void fail(std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, "identity", std::move(reason), std::move(advice));
}

}  // namespace

std::string kubernetes_coordinator(int index, const Lookup& get) {
  const std::string own = variable(get, "HOSTNAME").value_or("");
  const std::string name = own.substr(0, own.find('.'));  // setHostnameAsFQDN: the domain is there
  const std::string suffix = fmt::format("-{}", index);
  if (!name.ends_with(suffix) || name == suffix)
    fail(fmt::format("JOB_COMPLETION_INDEX={}, but HOSTNAME=\"{}\" is no pod's name that ends with "
                     "\"{}\", as where hostNetwork or hostname is set",
                     index, own, suffix),
         "set ROPEWALK_COORDINATOR=host:port on every pod: a free port at the pod of index 0");
  const std::string whole = own == name ? canonical_name(name) : own;
  if (!whole.starts_with(name + "."))
    fail(fmt::format("the pod {} (HOSTNAME, JOB_COMPLETION_INDEX={}) has no domain, so that no "
                     "other can look it up",
                     name, index),
         "name a headless service as the pods' `subdomain` (examples/kubernetes), or set "
         "ROPEWALK_COORDINATOR=host:port on every pod");
  const std::string first = name.substr(0, name.size() - suffix.size()) + "-0";
  return to_text(Endpoint{first + whole.substr(name.size()), kPort});
}

}  // namespace ropewalk::bootstrap
