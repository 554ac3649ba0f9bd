#include "base/shared_library.h"

#include <dlfcn.h>

#include <cassert>

namespace ropewalk {
namespace {

std::string linker_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

SharedLibrary::SharedLibrary(const std::vector<std::string>& names) {
  assert(!names.empty());
  std::string errors;
  for (const int if_loaded : {RTLD_NOLOAD, 0}) {
    errors.clear();
    for (const std::string& name : names) {
      handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | if_loaded);
      if (handle_ != nullptr) return;
      errors += (errors.empty() ? "" : "; ") + linker_error();
    }
  }
  missing_ = errors;
}

void* SharedLibrary::find(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* const address = ::dlsym(handle_, name);
  if (address == nullptr && missing_.empty()) missing_ = linker_error();
  return address;
}

}  // namespace ropewalk
