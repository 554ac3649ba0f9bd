#include "checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "ropewalk/status.h"

namespace digits {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() { fs::create_directories(folder_); }
  ~Checkpoint() override { fs::remove_all(folder_); }

  std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  /// Loading fails and leaves the parameters alone; returns what the error says.
  std::string complaint(size_t count = 3) const {
    std::vector<float> into(count, 42.0f);
    std::string reason;
    try {
      load_checkpoint(path_, into);
    } catch (const ropewalk::Error& error) {
      reason = error.failure().reason;
    }
    EXPECT_EQ(into, std::vector<float>(count, 42.0f));
    return reason;
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("digits_checkpoint_test." + std::to_string(getpid()));
  const std::string path_ = folder_ / "checkpoint";
  const std::vector<float> saved_ = {1.5f, -0.0f, std::nanf("7")};
};

TEST_F(Checkpoint, GivesBackTheSameBits) {
  save_checkpoint(path_, saved_);
  std::vector<float> loaded(saved_.size());
  load_checkpoint(path_, loaded);
  EXPECT_EQ(std::memcmp(loaded.data(), saved_.data(), saved_.size() * sizeof(float)), 0);
}

TEST_F(Checkpoint, HasTheDocumentedLayout) {
  save_checkpoint(path_, saved_);
  const std::string bytes = read();
  EXPECT_EQ(bytes.size(), 16u + 12 + 16);
  EXPECT_EQ(bytes.substr(0, 16), std::string("ropedigs\x01\0\0\0\x03\0\0\0", 16));
}

TEST_F(Checkpoint, ReplacesAFileAndLeavesNoDraft) {
  save_checkpoint(path_, std::vector<float>{9, 9, 9});
  save_checkpoint(path_, saved_);
  std::vector<float> loaded(saved_.size());
  load_checkpoint(path_, loaded);
  EXPECT_EQ(loaded[0], 1.5f);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(Checkpoint, RefusesAMissingFile) {
  EXPECT_NE(complaint().find("No such file"), std::string::npos);
}

TEST_F(Checkpoint, RefusesEveryCutAndEveryAlteredByte) {
  save_checkpoint(path_, saved_);
  const std::string whole = read();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write(whole.substr(0, bytes));
    EXPECT_NE(complaint(), "") << "cut to " << bytes;
    std::string altered = whole;
    altered[bytes] ^= 0x10;
    write(altered);
    EXPECT_NE(complaint(), "") << "altered at " << bytes;
  }
  write(whole + "x");
  EXPECT_NE(complaint().find("length"), std::string::npos);
}

TEST_F(Checkpoint, SaysWhatIsWrong) {
  save_checkpoint(path_, saved_);
  const std::string whole = read();
  EXPECT_NE(complaint(4).find("holds 3 parameters, the net has 4"), std::string::npos);
  std::string altered = whole;
  altered[8] = 2;
  write(altered);
  EXPECT_NE(complaint().find("version 2"), std::string::npos);
  altered = whole;
  altered[20] ^= 1;
  write(altered);
  EXPECT_NE(complaint().find("checksum"), std::string::npos);
  write("some text that is no checkpoint");
  EXPECT_NE(complaint().find("not a checkpoint"), std::string::npos);
}

TEST_F(Checkpoint, AFailedSaveIsAnErrorAndLeavesNothingBehind) {
  EXPECT_THROW(save_checkpoint(folder_ / "missing" / "file", saved_), ropewalk::Error);
  fs::create_directory(folder_ / "taken");
  EXPECT_THROW(save_checkpoint(folder_ / "taken", saved_), ropewalk::Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST(DigestOf, DependsOnEveryByte) {
  const std::vector<float> a = {1, 2}, b = {1, 3};
  const auto digest = [](std::span<const float> of) { return hex(digest_of(std::as_bytes(of))); };
  EXPECT_EQ(digest(a).size(), 32u);
  EXPECT_EQ(digest(a), digest(std::vector<float>(a)));
  EXPECT_NE(digest(a), digest(b));
}

}  // namespace
}  // namespace digits
