#include "transports/ucx/library.h"

#include <dlfcn.h>

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

}  // namespace

Library load() {
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
