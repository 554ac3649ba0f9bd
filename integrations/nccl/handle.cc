#include "integrations/nccl/handle.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/little_endian.h"
#include "bootstrap/auth.h"

namespace ropewalk::nccl {
namespace {

using bootstrap::SocketAddress;

constexpr std::array<char, 4> kMagic = {'r', 'w', 'n', 'c'};
constexpr uint8_t kVersion = 1;
constexpr size_t kPortAt = 8, kRandomAt = 16, kAddressesAt = 48, kAddressBytes = 16;
static_assert(kAddressesAt + kHandleAddressesMax * kAddressBytes <= kHandleBytes);

std::string to_hex(const std::array<std::byte, 32>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

void encode_address(const SocketAddress& address, std::byte* into) {
  const std::string ip = address.ip();
  const std::string text = address.family() == AF_INET ? "::ffff:" + ip : ip;
  inet_pton(AF_INET6, text.c_str(), into);
}

SocketAddress decode_address(const std::byte* from, uint16_t port) {
  in6_addr ip;
  std::memcpy(&ip, from, sizeof ip);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&ip))
    inet_ntop(AF_INET, from + 12, text.data(), text.size());
  else
    inet_ntop(AF_INET6, &ip, text.data(), text.size());
  return bootstrap::numeric_address(bootstrap::Endpoint{text.data(), port}).value();
}

}  // namespace

void Handle::encode(std::byte* into) const {
  std::fill_n(into, kHandleBytes, std::byte{0});
  std::memcpy(into, kMagic.data(), kMagic.size());
  const size_t count = std::min(addresses.size(), kHandleAddressesMax);
  into[4] = std::byte{kVersion};
  into[5] = std::byte{has_job_key};
  into[6] = static_cast<std::byte>(count);
  little_endian::store(into + kPortAt, addresses.at(0).port());
  std::ranges::copy(random, into + kRandomAt);
  for (size_t i = 0; i < count; ++i)
    encode_address(addresses[i], into + kAddressesAt + i * kAddressBytes);
}

Handle Handle::decode(const std::byte* from) {
  const auto count = static_cast<size_t>(from[6]);
  const auto port = little_endian::load<uint16_t>(from + kPortAt);
  const bool is_one = std::memcmp(from, kMagic.data(), kMagic.size()) == 0 &&
                      from[4] == std::byte{kVersion} && from[5] <= std::byte{1} && count > 0 &&
                      count <= kHandleAddressesMax && port != 0;
  if (!is_one)
    throw Error(ErrorCode::protocol, "connect", "the peer's handle is not of this plugin",
                "run the same version of Ropewalk on every rank, with the same NCCL_NET_PLUGIN");
  Handle handle;
  handle.has_job_key = from[5] == std::byte{1};
  std::copy_n(from + kRandomAt, handle.random.size(), handle.random.begin());
  for (size_t i = 0; i < count; ++i)
    handle.addresses.push_back(decode_address(from + kAddressesAt + i * kAddressBytes, port));
  return handle;
}

Key Handle::key(const Secret& job_key) const {
  if (has_job_key == job_key.empty())
    throw Error(ErrorCode::refused, "connect",
                job_key.empty() ? "the peer has a ROPEWALK_JOB_KEY, and this rank has none"
                                : "this rank has a ROPEWALK_JOB_KEY, and the peer has none",
                kKeyAdvice);
  const std::string hex = to_hex(random);
  if (!has_job_key) return bootstrap::job_key(hex);
  const bool is_local = std::ranges::all_of(addresses, &SocketAddress::is_loopback);
  if (!job_key.is_strong() && !is_local) refuse_weak_key(-1);
  return bootstrap::job_key(bootstrap::part_secret(job_key.text(), hex));
}

}  // namespace ropewalk::nccl
