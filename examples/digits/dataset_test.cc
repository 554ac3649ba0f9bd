#include "dataset.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "ropewalk/status.h"

namespace digits {
namespace {

namespace fs = std::filesystem;

std::string line_of(int pixel, int label) {
  std::string line;
  for (size_t i = 0; i < kPixels; ++i) line += std::to_string(pixel) + ",";
  return line + std::to_string(label) + "\n";
}

/// What the error about `text` says; empty: there is none.
std::string complaint(const std::string& text) {
  try {
    parse_images(text, "x");
  } catch (const ropewalk::Error& error) {
    return error.failure().reason;
  }
  return {};
}

class DataFile : public ::testing::Test {
 protected:
  DataFile() { fs::create_directories(folder_); }
  ~DataFile() override { fs::remove_all(folder_); }
  std::string write(const std::string& bytes) {
    std::ofstream(folder_ / "data", std::ios::binary) << bytes;
    return folder_ / "data";
  }
  const fs::path folder_ =
      fs::temp_directory_path() / ("digits_dataset_test." + std::to_string(getpid()));
};

TEST(ParseImages, ReadsPixelsAndLabel) {
  const auto images = parse_images(line_of(16, 3) + line_of(4, 9), "x");
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(images[0].label, 3);
  EXPECT_EQ(images[0].pixels[63], 1.0f);
  EXPECT_EQ(images[1].label, 9);
  EXPECT_EQ(images[1].pixels[0], 0.25f);
}

TEST(ParseImages, AcceptsCarriageReturnsAndAMissingLastNewline) {
  std::string text = line_of(1, 2);
  text.back() = '\r';
  EXPECT_EQ(parse_images(text + "\n" + line_of(1, 2), "x").size(), 2u);
  text.pop_back();
  EXPECT_EQ(parse_images(text, "x").size(), 1u);
}

TEST(ParseImages, NamesTheDamagedLine) {
  EXPECT_NE(complaint(line_of(1, 1) + line_of(17, 1)).find("x line 2"), std::string::npos);
}

TEST(ParseImages, RefusesDamagedText) {
  const std::string good = line_of(1, 1);
  EXPECT_EQ(complaint(good), "");
  EXPECT_NE(complaint(""), "");
  EXPECT_NE(complaint("\n"), "");
  EXPECT_NE(complaint(good + "\n"), "");  // an empty line
  EXPECT_NE(complaint(line_of(-1, 1)), "");
  EXPECT_NE(complaint(line_of(17, 1)), "");
  EXPECT_NE(complaint(line_of(1, 10)), "");
  EXPECT_NE(complaint("a" + good), "");
  EXPECT_NE(complaint("1," + good), "");     // a pixel too many
  EXPECT_NE(complaint(good.substr(2)), "");  // a pixel too few
  EXPECT_NE(complaint(good.substr(0, good.size() - 1) + " \n"), "");
  EXPECT_NE(complaint("99999999999999999999" + good), "");
  EXPECT_NE(complaint(std::string(1000, '\0')), "");
  for (size_t bytes = 1; bytes + 2 < good.size(); ++bytes)
    EXPECT_NE(complaint(good.substr(0, bytes)), "") << bytes;
}

TEST_F(DataFile, ReadsTheFileThatComesWithRopewalk) {
  const auto images = load_images(find_data());
  ASSERT_EQ(images.size(), 1797u);
  std::map<int, int> labels;
  for (const Image& image : images) ++labels[image.label];
  EXPECT_EQ(labels.size(), kClasses);
  EXPECT_EQ(images[0].label, 0);
  EXPECT_EQ(images[0].pixels[2], 5.0f / 16);
}

TEST_F(DataFile, ReadsPlainText) {
  EXPECT_EQ(load_images(write(line_of(1, 1))).size(), 1u);
}

TEST_F(DataFile, RefusesAMissingFileAndAFolder) {
  EXPECT_THROW(load_images(folder_ / "missing"), ropewalk::Error);
  EXPECT_THROW(load_images(folder_), ropewalk::Error);
}

TEST_F(DataFile, RefusesACutOrAlteredGzip) {
  std::ifstream file(find_data(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  ASSERT_GT(whole.size(), 1000u);
  EXPECT_EQ(load_images(write(whole)).size(), 1797u);
  EXPECT_THROW(load_images(write(whole.substr(0, whole.size() / 2))), ropewalk::Error);
  EXPECT_THROW(load_images(write(whole.substr(0, whole.size() - 4))), ropewalk::Error);
  std::string altered = whole;
  altered[altered.size() - 6] ^= 1;  // the checksum at the end
  EXPECT_THROW(load_images(write(altered)), ropewalk::Error);
}

TEST(SplitImages, HoldsOutEveryFifthWithEveryLabel) {
  const Split split = split_images(load_images(find_data()));
  EXPECT_EQ(split.held_out.size(), 360u);
  EXPECT_EQ(split.training.size(), 1437u);
  std::set<int> labels;
  for (const Image& image : split.held_out) labels.insert(image.label);
  EXPECT_EQ(labels.size(), kClasses);
}

TEST(PartOfRank, CoversEveryImageOnce) {
  const std::vector<Image> images(10);
  for (int size = 1; size <= 12; ++size) {
    const Image* next = images.data();
    for (int rank = 0; rank < size; ++rank) {
      const auto part = part_of_rank(images, rank, size);
      EXPECT_EQ(part.data(), next);
      EXPECT_LE(part.size(), part_of_rank(images, 0, size).size());
      next += part.size();
    }
    EXPECT_EQ(next, images.data() + images.size());
  }
}

}  // namespace
}  // namespace digits
