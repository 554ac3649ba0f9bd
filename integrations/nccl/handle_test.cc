#include "integrations/nccl/handle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "bootstrap/auth.h"
#include "ropewalk/status.h"

namespace ropewalk::nccl {
namespace {

using Bytes = std::array<std::byte, kHandleBytes>;

std::vector<std::string> texts_of(const Handle& handle) {
  std::vector<std::string> texts;
  for (const auto& address : handle.addresses) texts.push_back(address.text());
  return texts;
}

Handle handle_with(const std::vector<std::string>& addresses) {
  Handle handle;
  for (const std::string& text : addresses)
    handle.addresses.push_back(*bootstrap::numeric_address(text));
  for (size_t i = 0; i < handle.random.size(); ++i) handle.random[i] = static_cast<std::byte>(i);
  return handle;
}

TEST(Handle, TellsWhatWasTold) {
  Handle told = handle_with({"192.168.1.2:4711", "[fd00:7::1]:4711"});
  told.has_job_key = true;
  Bytes bytes;
  told.encode(bytes.data());
  const Handle heard = Handle::decode(bytes.data());
  EXPECT_EQ(texts_of(heard), texts_of(told));
  EXPECT_EQ(heard.random, told.random);
  EXPECT_TRUE(heard.has_job_key);
}

TEST(Handle, TellsTheFirstAddressesWhereThereAreMany) {
  const Handle told =
      handle_with({"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"});
  Bytes bytes;
  told.encode(bytes.data());
  EXPECT_EQ(texts_of(Handle::decode(bytes.data())),
            (std::vector<std::string>{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"}));
}

TEST(Handle, IsAsTheProtocolSays) {
  Bytes bytes;
  handle_with({"1.2.3.4:4711"}).encode(bytes.data());
  Bytes expected{};
  const auto put = [&](size_t at, std::vector<int> values) {
    std::ranges::transform(values, expected.begin() + static_cast<std::ptrdiff_t>(at),
                           [](int value) { return static_cast<std::byte>(value); });
  };
  put(0, {'r', 'w', 'n', 'c', 1, 0, 1, 0, 0x67, 0x12});
  for (int i = 0; i < 32; ++i) put(static_cast<size_t>(16 + i), {i});
  put(58, {0xff, 0xff, 1, 2, 3, 4});
  EXPECT_EQ(bytes, expected);
}

TEST(Handle, OfNoneIsRefused) {
  Bytes good;
  handle_with({"1.2.3.4:4711"}).encode(good.data());
  for (const size_t at : {0, 4, 5, 6}) {
    Bytes bad = good;
    bad[at] = std::byte{9};
    EXPECT_THROW(Handle::decode(bad.data()), Error) << at;
  }
  Bytes no_port = good;
  no_port[8] = no_port[9] = std::byte{0};
  EXPECT_THROW(Handle::decode(no_port.data()), Error);
}

TEST(Handle, NeedsStrongKeysBeyondLoopback) {
  bootstrap::start_cryptography();
  Handle outward = handle_with({"192.168.1.2:4711"}), local = handle_with({"127.0.0.1:4711"});
  outward.has_job_key = local.has_job_key = true;
  EXPECT_THROW(outward.key("guess"), Error);
  EXPECT_NO_THROW(local.key("guess"));
  EXPECT_NE(outward.key("0123456789abcdef0123456789abcdef"), local.key("guess"));
}

TEST(Handle, HasTheKeyWhereRanksHaveNone) {
  bootstrap::start_cryptography();
  Handle one = handle_with({"192.168.1.2:4711"}), other = one;
  EXPECT_EQ(one.key({}), other.key({}));
  other.random[5] ^= std::byte{1};
  EXPECT_NE(one.key({}), other.key({}));
  EXPECT_THROW(one.key("0123456789abcdef0123456789abcdef"), Error);
}

}  // namespace
}  // namespace ropewalk::nccl
