#include "bootstrap/knobs.h"

#include <gtest/gtest.h>

#include <map>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using namespace std::chrono_literals;
using Table = std::map<std::string, std::string>;

Knobs parse(const Table& table) {
  return parse_knobs([&table](const char* name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  });
}

TEST(Knobs, DefaultsAreThoseOfTheStruct) {
  const Knobs knobs = parse({});
  EXPECT_FALSE(knobs.rank);
  EXPECT_EQ(knobs.transport, "auto");
  EXPECT_EQ(knobs.timeout, 30s);
  EXPECT_EQ(knobs.link_timeout, 800ms);
  EXPECT_EQ(knobs.slice_bytes, 1u << 20);
  EXPECT_TRUE(knobs.progress_thread);
}

TEST(Knobs, ReadsEveryVariable) {
  const Knobs knobs = parse({{"ROPEWALK_RANK", "3"},
                             {"ROPEWALK_SIZE", "8"},
                             {"ROPEWALK_COORDINATOR", "[::1]:4242"},
                             {"ROPEWALK_COORDINATOR_FD", "5"},
                             {"ROPEWALK_JOB_KEY", "secret"},
                             {"ROPEWALK_TRANSPORT", "tcp"},
                             {"ROPEWALK_REQUIRE", "rdma"},
                             {"ROPEWALK_ALGORITHM", "ring"},
                             {"ROPEWALK_SOCKET_IFNAME", "eth"},
                             {"ROPEWALK_TIMEOUT", "1.5"},
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
  EXPECT_EQ(knobs.rank, 3);
  EXPECT_EQ(knobs.size, 8);
  EXPECT_EQ(knobs.coordinator, "[::1]:4242");
  EXPECT_EQ(knobs.coordinator_fd, 5);
  EXPECT_EQ(knobs.job_key, "secret");
  EXPECT_EQ(knobs.transport, "tcp");
  EXPECT_EQ(knobs.require, "rdma");
  EXPECT_EQ(knobs.algorithm, "ring");
  EXPECT_EQ(knobs.socket_ifname, "eth");
  EXPECT_EQ(knobs.timeout, 1500ms);
  EXPECT_EQ(knobs.link_timeout, 250ms);
  EXPECT_EQ(knobs.tcp_streams, 4);
  EXPECT_EQ(knobs.ib_hca, "^mlx5_3");
  EXPECT_EQ(knobs.ib_gid_index, 3);
  EXPECT_EQ(knobs.ib_traffic_class, 106);
  EXPECT_EQ(knobs.ib_service_level, 5);
  EXPECT_EQ(knobs.ib_pkey_index, 2);
  EXPECT_EQ(knobs.ib_timeout, 12);
  EXPECT_EQ(knobs.ib_retry, 7);
  EXPECT_EQ(knobs.ib_lanes, 8);
  EXPECT_EQ(knobs.ib_mtu, 1024);
  EXPECT_EQ(knobs.slice_bytes, 1u << 20);
  EXPECT_FALSE(knobs.progress_thread);
  EXPECT_EQ(knobs.progress_cpu, 7);
  EXPECT_EQ(knobs.log, LogLevel::debug);
}

TEST(Knobs, EveryBadValueIsNamed) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"ROPEWALK_RANK", "-1"},          {"ROPEWALK_RANK", "1x"},
      {"ROPEWALK_SIZE", "0"},           {"ROPEWALK_COORDINATOR", "host"},
      {"ROPEWALK_COORDINATOR", "h:0"},  {"ROPEWALK_COORDINATOR", "::1:5"},
      {"ROPEWALK_COORDINATOR_FD", "x"}, {"ROPEWALK_TRANSPORT", "TCP"},
      {"ROPEWALK_REQUIRE", "ib"},       {"ROPEWALK_ALGORITHM", "rings"},
      {"ROPEWALK_TIMEOUT", "0"},        {"ROPEWALK_TIMEOUT", "-3"},
      {"ROPEWALK_TIMEOUT", "1e3"},      {"ROPEWALK_LINK_TIMEOUT", "1ms"},
      {"ROPEWALK_TCP_STREAMS", "65"},   {"ROPEWALK_SLICE_BYTES", "1"},
      {"ROPEWALK_SLICE_BYTES", "1.5M"}, {"ROPEWALK_PROGRESS_THREAD", "yes"},
      {"ROPEWALK_IB_HCA", "^"},         {"ROPEWALK_IB_HCA", "mlx5_0:x"},
      {"ROPEWALK_IB_GID_INDEX", "256"}, {"ROPEWALK_IB_TC", "256"},
      {"ROPEWALK_IB_SL", "16"},         {"ROPEWALK_IB_PKEY", "-1"},
      {"ROPEWALK_IB_TIMEOUT", "0"},     {"ROPEWALK_IB_TIMEOUT", "23"},
      {"ROPEWALK_IB_RETRY", "8"},       {"ROPEWALK_IB_LANES", "0"},
      {"ROPEWALK_IB_LANES", "9"},       {"ROPEWALK_IB_MTU", "1500"},
      {"ROPEWALK_PROGRESS_CPU", "-1"},  {"ROPEWALK_LOG", "verbose"}};
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

TEST(Knobs, NamesOfTransports) {
  for (const std::string_view name : kTransportNames) {
    EXPECT_TRUE(is_transport_name(name));
    EXPECT_EQ(parse({{"ROPEWALK_TRANSPORT", std::string(name)}}).transport, name);
  }
  EXPECT_FALSE(is_transport_name("ib"));
}

// ROPEWALK_IB_RETRY promises an error within a second on adapters that keep to their timeout.
TEST(Knobs, APeerThatAnswersNothingIsLostWithinASecond) {
  const Knobs knobs = parse({});
  const double looks = 0.1;  // of the engine, until it takes the peer for the cause and tells
  const double seconds = (knobs.ib_retry + 1) * 4.096e-6 * (1 << knobs.ib_timeout) + looks;
  EXPECT_LT(seconds, 1);
}

TEST(Knobs, TheJobKeyIsNeverShown) {
  try {
    parse({{"ROPEWALK_JOB_KEY", std::string(5000, 'k')}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("kkk"), std::string::npos);
  }
}

TEST(Knobs, UnknownNamesAreFound) {
  const char* environ[] = {"PATH=/bin", "ROPEWALK_LOG=info", "ROPEWALK_TIMEOUTS=3", nullptr};
  EXPECT_EQ(unknown_knobs(environ), std::vector<std::string>{"ROPEWALK_TIMEOUTS"});
}

TEST(Knobs, Sizes) {
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("64K"), 65536u);
  EXPECT_EQ(parse_size("1M"), 1u << 20);
  EXPECT_EQ(parse_size("2G"), size_t{2} << 30);
  for (const char* bad :
       {"", "K", "-1", "1.5K", "1KB", " 1", "18446744073709551616", "18014398509481984K"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(Knobs, Durations) {
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
