#include "transports/ucx/handshake.h"

#include <cassert>

#include "base/little_endian.h"

namespace ropewalk::ucx {
namespace {

using little_endian::append;
using little_endian::Cursor;

constexpr uint32_t kMagic = 0x58555752;  // "RWUX"

}  // namespace

std::vector<std::byte> encode(const Handshake& handshake) {
  assert(!handshake.address.empty() && handshake.address.size() <= kAddressBytesMax);
  assert(handshake.hello.size() <= kHelloBytesMax);
  std::vector<std::byte> bytes;
  append(bytes, kMagic);
  append(bytes, kHandshakeVersion);
  append(bytes, uint16_t{0});
  append(bytes, handshake.rank);
  append(bytes, static_cast<uint32_t>(handshake.hello.size()));
  append(bytes, static_cast<uint32_t>(handshake.address.size()));
  append(bytes, handshake.link);
  bytes.insert(bytes.end(), handshake.hello.begin(), handshake.hello.end());
  bytes.insert(bytes.end(), handshake.address.begin(), handshake.address.end());
  return bytes;
}

const char* parse_head(const std::byte* head, Handshake& handshake, size_t& rest_bytes) {
  Cursor cursor(head);
  if (cursor.take<uint32_t>() != kMagic) return "sent bytes that are no handshake";
  if (cursor.take<uint16_t>() != kHandshakeVersion)
    return "speaks another version of the UCX protocol";
  cursor.take<uint16_t>();  // unused
  handshake.rank = cursor.take<uint32_t>();
  const auto hello_bytes = cursor.take<uint32_t>();
  const auto address_bytes = cursor.take<uint32_t>();
  handshake.link = cursor.take<uint32_t>();
  if (hello_bytes > kHelloBytesMax) return "sent too long a hello";
  if (address_bytes == 0 || address_bytes > kAddressBytesMax)
    return "sent no address, or too long a one";
  handshake.hello.resize(hello_bytes);
  handshake.address.resize(address_bytes);
  rest_bytes = size_t{hello_bytes} + address_bytes;
  return nullptr;
}

const char* parse_rest(const std::byte* rest, Handshake& handshake) {
  Cursor cursor(rest);
  cursor.take(handshake.hello.data(), handshake.hello.size());
  cursor.take(handshake.address.data(), handshake.address.size());
  return nullptr;
}

}  // namespace ropewalk::ucx
