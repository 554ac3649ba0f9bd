#include "base/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

class TextFile : public ::testing::Test {
 protected:
  TextFile() : folder_(std::string(::testing::TempDir()) + "/text_file_test.XXXXXX") {
    mkdtemp(folder_.data());
  }
  ~TextFile() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/file"; }
  void write(const std::string& text) { std::ofstream(path()) << text; }
  static std::string refusal(const std::string& path) {
    try {
      read_text_file(path, 8, "test", "advice");
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.failure().reason;
    }
  }

  std::string folder_;
};

TEST_F(TextFile, IsReadWhole) {
  const std::string text(100'000, 'x');
  write(text);
  EXPECT_EQ(read_text_file(path(), text.size(), "test", ""), text);
}

TEST_F(TextFile, SaysWhyItCannotBeRead) {
  EXPECT_EQ(refusal("/no/such/file"), "cannot read /no/such/file: No such file or directory");
  EXPECT_EQ(refusal(folder_), "cannot read " + folder_ + ": Is a directory");
  EXPECT_EQ(refusal("/dev/zero"), "cannot read /dev/zero: it is no regular file");
  write("");
  EXPECT_EQ(refusal(path()), "cannot read " + path() + ": it is empty");
  write("12345678");
  EXPECT_EQ(refusal(path()), "");
  write("123456789");
  EXPECT_EQ(refusal(path()), "cannot read " + path() + ": it is longer than 8 bytes");
}

// To open it waited until somebody wrote to it.
TEST_F(TextFile, IsNoFifo) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_EQ(refusal(path()), "cannot read " + path() + ": it is no regular file");
}

}  // namespace
}  // namespace ropewalk
