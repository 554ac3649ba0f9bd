// For tests: a directory that stands for "/".
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "gtest/gtest.h"

namespace ropewalk {

/// Holds the files that a test writes into it; gone with the object.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = testing::TempDir() + "ropewalk-root-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const std::string& file, const std::string& text) const {
    const auto path = path_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ropewalk
