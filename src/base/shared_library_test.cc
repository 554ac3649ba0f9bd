#include "base/shared_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace ropewalk {
namespace {

// Of glibc: every process here has the first, and none the other two.
constexpr const char *kLoaded = "libm.so.6", *kNotLoaded = "libutil.so.1", *kFresh = "libanl.so.1";
constexpr const char* kNowhere = "libropewalk-nowhere.so.1";

/// Whether dlopen with these flags finds it; it is then closed again.
bool opens(const char* name, int flags) {
  void* const handle = ::dlopen(name, RTLD_NOW | flags);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}
bool is_loaded(const char* name) {
  return opens(name, RTLD_NOLOAD);
}

TEST(SharedLibrary, FindsFunctions) {
  SharedLibrary library({kLoaded});
  double (*cosine)(double) = nullptr;
  library.find("cos", cosine);
  EXPECT_EQ(library.missing(), "");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0), 1);
}

TEST(SharedLibrary, TellsAllNamesThatAreNowhere) {
  SharedLibrary library({kNowhere, "/nowhere/libm.so.6"});
  double (*cosine)(double) = nullptr;
  library.find("cos", cosine);
  EXPECT_EQ(cosine, nullptr);
  EXPECT_EQ(library.missing(),
            "libropewalk-nowhere.so.1: cannot open shared object file: No such file or directory; "
            "/nowhere/libm.so.6: cannot open shared object file: No such file or directory");
}

TEST(SharedLibrary, TellsTheFirstFunctionThatIsMissing) {
  SharedLibrary library({kLoaded});
  double (*none)(double) = nullptr, (*cosine)(double) = nullptr;
  library.find("ropewalk_first", none);
  library.find("ropewalk_second", none);
  library.find("cos", cosine);
  EXPECT_EQ(none, nullptr);
  EXPECT_NE(cosine, nullptr);
  EXPECT_TRUE(library.missing().ends_with("libm.so.6: undefined symbol: ropewalk_first"))
      << library.missing();
}

TEST(SharedLibrary, OpensTheFirstThatIsThere) {
  EXPECT_EQ(SharedLibrary({kNowhere, kFresh}).missing(), "");
  EXPECT_TRUE(is_loaded(kFresh)) << "it stays open";
}

TEST(SharedLibrary, PrefersOneThatIsLoaded) {
  ASSERT_TRUE(is_loaded(kLoaded) && opens(kNotLoaded, 0) && !is_loaded(kNotLoaded));
  SharedLibrary library({kNowhere, kNotLoaded, kLoaded});
  double (*cosine)(double) = nullptr;
  library.find("cos", cosine);
  EXPECT_NE(cosine, nullptr) << library.missing();
  EXPECT_FALSE(is_loaded(kNotLoaded));
}

}  // namespace
}  // namespace ropewalk
