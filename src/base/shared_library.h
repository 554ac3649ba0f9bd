// Shared libraries that are opened when they are first needed, so that Ropewalk runs where they are
// not installed.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

namespace ropewalk {

/// It stays open for ever: its functions may be in use, and it may have threads that still end.
/// Throws nothing; once all is looked up, `missing` says whether it may be used.
class SharedLibrary {
 public:
  /// The first of `names`, sonames or paths, that this process has loaded already, or else the
  /// first that can be opened.
  explicit SharedLibrary(const std::vector<std::string>& names);

  /// Leaves `function` as it is where there is none of this name.
  template <class Function>
  void find(const char* name, Function*& function) {
    static_assert(std::is_function_v<Function>);
    if (void* const address = find(name)) function = reinterpret_cast<Function*>(address);
  }

  /// Why no library could be opened, or else the first function that it lacks, as the linker tells
  /// it; empty: nothing is missing.
  const std::string& missing() const { return missing_; }

 private:
  void* find(const char* name);

  void* handle_ = nullptr;
  std::string missing_;
};

}  // namespace ropewalk
