#include "bootstrap/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using namespace std::chrono_literals;
using Table = std::map<std::string, std::string>;

Config parse(const Table& table) {
  return parse_config([&table](const char* name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  });
}

TEST(Config, DefaultsAreThoseOfTheStruct) {
  const Config config = parse({});
  EXPECT_FALSE(config.rank);
  EXPECT_EQ(config.transport, "auto");
  EXPECT_EQ(config.timeout, 30s);
  EXPECT_EQ(config.time_to_join(), 30s);
  EXPECT_EQ(config.link_timeout, 22s);
  EXPECT_EQ(config.slice_bytes, 1u << 20);
  EXPECT_TRUE(config.progress_thread);
}

TEST(Config, ReadsEveryVariable) {
  const Config config = parse({{"ROPEWALK_RANK", "3"},
                               {"ROPEWALK_SIZE", "8"},
                               {"ROPEWALK_COORDINATOR", "[::1]:4242"},
                               {"ROPEWALK_COORDINATOR_FD", "5"},
                               {"ROPEWALK_OPEN", "1"},
                               {"ROPEWALK_SECURE", "1"},
                               {"ROPEWALK_TRANSPORT", "tcp"},
                               {"ROPEWALK_REQUIRE", "rdma"},
                               {"ROPEWALK_ALGORITHM", "ring"},
                               {"ROPEWALK_SOCKET_IFNAME", "eth"},
                               {"ROPEWALK_TIMEOUT", "1.5"},
                               {"ROPEWALK_JOIN_TIMEOUT", "10m"},
                               {"ROPEWALK_LINK_TIMEOUT", "250ms"},
                               {"ROPEWALK_TCP_STREAMS", "4"},
                               {"ROPEWALK_IB_HCA", "^mlx5_3"},
                               {"ROPEWALK_IB_GID_INDEX", "3"},
                               {"ROPEWALK_IB_TC", "106"},
                               {"ROPEWALK_IB_SL", "5"},
                               {"ROPEWALK_IB_PKEY", "2"},
                               {"ROPEWALK_IB_TIMEOUT", "12"},
                               {"ROPEWALK_IB_RETRY", "7"},
                               {"ROPEWALK_IB_LANES", "8"},
                               {"ROPEWALK_IB_MTU", "1024"},
                               {"ROPEWALK_SLICE_BYTES", "1M"},
                               {"ROPEWALK_PROGRESS_THREAD", "0"},
                               {"ROPEWALK_PROGRESS_CPU", "7"},
                               {"ROPEWALK_LOG", "debug"}});
  EXPECT_EQ(config.rank, 3);
  EXPECT_EQ(config.size, 8);
  EXPECT_EQ(config.coordinator, "[::1]:4242");
  EXPECT_EQ(config.coordinator_fd, 5);
  EXPECT_TRUE(config.open);
  EXPECT_TRUE(config.secure);
  EXPECT_EQ(config.transport, "tcp");
  EXPECT_EQ(config.require, "rdma");
  EXPECT_EQ(config.algorithm, Algorithm::ring);
  EXPECT_EQ(config.socket_ifname, "eth");
  EXPECT_EQ(config.timeout, 1500ms);
  EXPECT_EQ(config.time_to_join(), 10min);
  EXPECT_EQ(config.link_timeout, 250ms);
  EXPECT_EQ(config.tcp_streams, 4);
  EXPECT_EQ(config.ib_hca, "^mlx5_3");
  EXPECT_EQ(config.ib_gid_index, 3);
  EXPECT_EQ(config.ib_traffic_class, 106);
  EXPECT_EQ(config.ib_service_level, 5);
  EXPECT_EQ(config.ib_pkey_index, 2);
  EXPECT_EQ(config.ib_timeout, 12);
  EXPECT_EQ(config.ib_retry, 7);
  EXPECT_EQ(config.ib_lanes, 8);
  EXPECT_EQ(config.ib_mtu, 1024);
  EXPECT_EQ(config.slice_bytes, 1u << 20);
  EXPECT_FALSE(config.progress_thread);
  EXPECT_EQ(config.progress_cpu, 7);
  EXPECT_EQ(config.log, LogLevel::debug);
}

TEST(Config, EveryBadValueIsNamed) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"ROPEWALK_RANK", "-1"},          {"ROPEWALK_RANK", "1x"},
      {"ROPEWALK_SIZE", "0"},           {"ROPEWALK_COORDINATOR", "host"},
      {"ROPEWALK_COORDINATOR", "h:0"},  {"ROPEWALK_COORDINATOR", "::1:5"},
      {"ROPEWALK_COORDINATOR_FD", "x"}, {"ROPEWALK_TRANSPORT", "TCP"},
      {"ROPEWALK_REQUIRE", "ib"},       {"ROPEWALK_ALGORITHM", "rings"},
      {"ROPEWALK_TIMEOUT", "0"},        {"ROPEWALK_TIMEOUT", "-3"},
      {"ROPEWALK_TIMEOUT", "1e3"},      {"ROPEWALK_LINK_TIMEOUT", "1ms"},
      {"ROPEWALK_TCP_STREAMS", "65"},   {"ROPEWALK_SLICE_BYTES", "1"},
      {"ROPEWALK_SLICE_BYTES", "1.7K"}, {"ROPEWALK_PROGRESS_THREAD", "yes"},
      {"ROPEWALK_IB_HCA", "^"},         {"ROPEWALK_IB_HCA", "mlx5_0:x"},
      {"ROPEWALK_IB_GID_INDEX", "256"}, {"ROPEWALK_IB_TC", "256"},
      {"ROPEWALK_IB_SL", "16"},         {"ROPEWALK_IB_PKEY", "-1"},
      {"ROPEWALK_IB_TIMEOUT", "0"},     {"ROPEWALK_IB_TIMEOUT", "23"},
      {"ROPEWALK_IB_RETRY", "8"},       {"ROPEWALK_IB_LANES", "0"},
      {"ROPEWALK_IB_LANES", "9"},       {"ROPEWALK_IB_MTU", "1500"},
      {"ROPEWALK_PROGRESS_CPU", "-1"},  {"ROPEWALK_LOG", "verbose"},
      {"ROPEWALK_SECURE", "yes"}};
  for (const auto& [name, value] : bad) {
    try {
      parse({{name, value}});
      ADD_FAILURE() << name << "=" << value << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.failure().reason.find(name + "=\"" + value + "\""), std::string::npos)
          << error.what();
    }
  }
}

TEST(Config, NamesOfTransports) {
  for (const std::string name : {"auto", "shm", "tcp", "verbs", "ucx"}) {
    EXPECT_EQ(transport_named(name), name);
    EXPECT_EQ(parse({{"ROPEWALK_TRANSPORT", name}}).transport, name);
  }
  EXPECT_EQ(transport_named(""), std::nullopt);
  EXPECT_NE(transport_words_text().find("verbs (or rdma)"), std::string::npos);
  EXPECT_EQ(transport_named("ib"), std::nullopt);
  EXPECT_EQ(parse({{"ROPEWALK_TRANSPORT", "rdma"}}).transport, "verbs");
}

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Every file that a person wrote, but tests, which also try names that nobody knows.
std::vector<fs::path> files_of_tree(const fs::path& root) {
  std::vector<fs::path> files = {root / "README.md", root / "CHANGELOG.md"};
  for (const char* folder : {"docs", "include", "src", "transports", "tools", "bench", "python",
                             "examples", "integrations", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string name = entry.path().filename();
      const bool is_test = name.find("test") != std::string::npos && name.ends_with(".cc");
      if (entry.is_regular_file() && !is_test && !name.ends_with(".pyc"))
        files.push_back(entry.path());
    }
  return files;
}

struct Names {
  std::map<std::string, std::string> variables;  // and a file that names it
  std::set<std::string> macros;
};

/// Whole names only: "ROPEWALK_IB_*" is none.
void find_names(const fs::path& path, Names& names) {
  const std::string text = text_of(path);
  for (size_t at = 0; (at = text.find("ROPEWALK_", at)) != std::string::npos;) {
    const size_t end =
        std::min(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", at), text.size());
    const std::string name = text.substr(at, end - at);
    const std::string_view before = std::string_view(text).substr(0, at);
    const bool is_macro = before.ends_with("#define ") || before.ends_with("#ifdef ") ||
                          before.ends_with("-D") || before.ends_with("defined(");
    if (is_macro) names.macros.insert(name);
    if (!name.ends_with('_')) names.variables.emplace(name, path);
    at = end;
  }
}

TEST(Config, JoiningWhatRuns) {
  const auto parse = [](const std::string& text) {
    return parse_config([&](const char* name) {
      return std::string_view(name) == "ROPEWALK_JOIN_RUNNING" ? text.c_str() : nullptr;
    });
  };
  EXPECT_FALSE(parse("0").join_running || parse("0").join_if_running);
  EXPECT_TRUE(parse("1").join_running && !parse("1").join_if_running);
  EXPECT_TRUE(parse("auto").join_if_running && !parse("auto").join_running);
  for (const char* wrong : {"2", "Auto", "-1"}) EXPECT_THROW(parse(wrong), Error) << wrong;
}

// ROPEWALK_TORCH_CACHE was documented, but warned of as a typing error.
TEST(Config, DocumentedVariablesAreNotTakenForUnknown) {
  const char* root = std::getenv("SOURCE_ROOT");
  ASSERT_NE(root, nullptr) << "meson test sets it";
  Names names;
  for (const fs::path& path : files_of_tree(root)) find_names(path, names);
  for (const auto& [name, path] : names.variables) {
    if (names.macros.contains(name)) continue;
    const std::string entry = name + "=1";
    const char* environ[] = {entry.c_str(), nullptr};
    EXPECT_TRUE(unknown_variables(environ).empty()) << name << ", named in " << path;
  }
  for (const VariableInfo& info : variable_infos())
    EXPECT_TRUE(names.variables.contains(std::string(info.name))) << info.name;
}

TEST(Config, UnknownNamesAreFound) {
  const char* environ[] = {"PATH=/bin", "ROPEWALK_LOG=info", "ROPEWALK_TIMEOUTS=3", nullptr};
  EXPECT_EQ(unknown_variables(environ), std::vector<std::string>{"ROPEWALK_TIMEOUTS"});
}

TEST(Config, Sizes) {
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("8B"), 8u);
  EXPECT_EQ(parse_size("18446744073709551615"), SIZE_MAX);
  for (const char* text : {"64K", "64k", "64KB", "64kB", "64KiB", "64kib", "65536", "65536.0"})
    EXPECT_EQ(parse_size(text), 65536u) << text;
  for (const char* text : {"1.5M", "1.5MB", "1.5MiB", "1536K"})
    EXPECT_EQ(parse_size(text), 3u << 19) << text;
  EXPECT_EQ(parse_size("2G"), size_t{2} << 30);
  EXPECT_EQ(parse_size("0.5T"), size_t{1} << 39);
  EXPECT_EQ(parse_size(".5T"), size_t{1} << 39);
  for (const char* bad : {"",
                          "K",
                          "B",
                          "iB",
                          ".",
                          "-1",
                          "1.7K",
                          "1.5",
                          "1iB",
                          "1Ki",
                          "1KBB",
                          "1P",
                          "1 K",
                          " 1",
                          "1e3",
                          "0x10",
                          "1.2.3",
                          "inf",
                          "18446744073709551616",
                          "18014398509481984K",
                          "16777216.5T"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(Config, Durations) {
  EXPECT_EQ(parse_duration("1.5"), 1500ms);
  EXPECT_EQ(parse_duration("200ms"), 200ms);
  EXPECT_EQ(parse_duration("3s"), 3s);
  EXPECT_EQ(parse_duration("2m"), 120s);
  EXPECT_EQ(parse_duration("5us"), 5us);
  for (const char* bad :
       {"", "s", "-1", "1e3", "nan", "inf", "1 s", "1.2.3", "1d", "1e", "99999999999"})
    EXPECT_FALSE(parse_duration(bad)) << bad;
}

}  // namespace
}  // namespace ropewalk
