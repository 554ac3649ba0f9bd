// Links over ports of several addresses, and of such as change.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/rdma/machine.h"
#include "tests/rdma/verbs_group.h"

namespace ropewalk::testing {
namespace {

constexpr const char* kOwn = "10.99.0.1/24";
constexpr const char* kOwnSubnet = "10.99.0.0/24";

/// The addresses of the adapter's network device are these, in rows 1, 2, ... of its port's table,
/// until its end, then its own again.
class Addresses {
 public:
  explicit Addresses(const std::vector<std::string>& wanted) {
    become({});
    for (size_t count = 1; count <= wanted.size(); ++count)
      become({wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(count)});
  }
  ~Addresses() { become({kOwn}); }

  /// New ones come first: they take the lowest rows of the table that are empty then.
  void become(const std::vector<std::string>& wanted) {
    for (const std::string& address : wanted)
      if (!holds(now_, address)) shell("ip addr add " + address + " dev " + kNetworkDevice);
    for (const std::string& address : now_)
      if (!holds(wanted, address)) shell("ip addr del " + address + " dev " + kNetworkDevice);
    now_ = wanted;
    // In the background the kernel makes GIDs of them.
    for (int tries = 0; tries < 100 && count_of_gids() != wanted.size(); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(count_of_gids(), wanted.size());
  }

 private:
  static bool holds(const std::vector<std::string>& list, const std::string& address) {
    return std::find(list.begin(), list.end(), address) != list.end();
  }
  static size_t count_of_gids() {  // except the link-local one
    const auto infos = verbs::find_ports({}).infos;
    if (infos.empty()) return 0;
    const auto subnets = infos.front().subnets;
    return subnets == std::vector<std::string>{"fe80::/64"} ? 0 : subnets.size();
  }

  std::vector<std::string> now_ = {kOwn};
};

VerbsGroup::Adjust all_lanes_in(const std::string& subnet) {
  return [subnet](int, auto&, VerbsTransport::Options& options) {
    for (auto& lanes : options.lanes)
      for (VerbsTransport::LaneEnd& end : lanes) end.subnet = subnet;
  };
}

void expect_put_arrives(VerbsGroup& group) {
  const Piece source(group.at(0), 100'000), target(group.at(1), 100'000);
  std::memset(source.memory.data(), 7, 100'000);
  ASSERT_NE(group.at(0).put({.peer = 1,
                             .source = source.memory.data(),
                             .source_memory = source.registration(),
                             .bytes = 100'000,
                             .key = target.registration()->key(),
                             .notice = 1}),
            Posted::lost);
  EXPECT_TRUE(group.until({0, 1}, [&] { return target.memory.data()[99'999] == std::byte{7}; }))
      << group.at(0).why_lost(1).text;
}

TEST(VerbsAddresses, ALinkUsesTheAddressInTheSubnetThatIsAskedFor) {
  Addresses addresses({kOwn, "10.98.0.7/16"});
  VerbsGroup group(2, 2, all_lanes_in("10.98.0.0/16"));
  group.link(0, 1);
  addresses.become({"10.98.0.7/16"});  // a link over the other one would break
  expect_put_arrives(group);
}

// The row is the kernel's matter; the peer has been told the address.
TEST(VerbsAddresses, AnAddressThatMovesWhileALinkIsMadeIsFoundAgain) {
  Addresses addresses({kOwn});
  VerbsGroup group(2, 1, all_lanes_in(kOwnSubnet));
  group.at(0).connect(1, {});
  addresses.become({"10.98.0.7/16"});
  addresses.become({"10.98.0.7/16", "10.97.0.7/16"});  // which takes the row
  addresses.become({"10.97.0.7/16", kOwn});
  group.link(0, 1);
  expect_put_arrives(group);
}

// Such as those for privacy that IPv6 makes every day.
TEST(VerbsAddresses, AnAddressThatIsAddedWhileALinkIsMadeChangesNothing) {
  Addresses addresses({kOwn});
  addresses.become({"10.98.0.7/16"});  // in a later row
  VerbsGroup group(2, 1);
  group.at(0).connect(1, {});
  addresses.become({"10.98.0.7/16", "10.97.0.7/16"});  // in the row that was left, before it
  group.link(0, 1);
  expect_put_arrives(group);
}

TEST(VerbsAddresses, AnAddressThatChangesWhileALinkIsMadeIsNamed) {
  Addresses addresses({kOwn});
  VerbsGroup group(2, 1);
  group.at(0).connect(1, {});
  addresses.become({"10.98.0.7/16"});
  addresses.become({"10.97.0.7/16"});  // takes the row
  group.at(1).connect(0, {});
  EXPECT_TRUE(group.until({0, 1}, [&] { return !group.at(0).why_lost(1).text.empty(); }));
  EXPECT_EQ(group.at(0).why_lost(1).text,
            "rank 0's rxe0 port 1 was GID 10.99.0.1 when rank 1 was told of it, and is GID "
            "10.97.0.7 now");
}

}  // namespace
}  // namespace ropewalk::testing
