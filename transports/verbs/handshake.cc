#include "transports/verbs/handshake.h"

#include <algorithm>
#include <cassert>

#include "base/little_endian.h"

namespace ropewalk::verbs {
namespace {

using little_endian::append;
using little_endian::Cursor;

constexpr uint32_t kMagic = 0x42565752;  // "RWVB"
constexpr uint32_t kMask24 = 0xffffff;
constexpr uint8_t kMtu256 = 1, kMtu4096 = 5;  // of ibv_mtu

bool is_sound(const LaneAddress& lane) {
  const bool known_layer =
      lane.port.link_layer == LinkLayer::infiniband || lane.port.link_layer == LinkLayer::ethernet;
  return known_layer && lane.port.mtu >= kMtu256 && lane.port.mtu <= kMtu4096 &&
         lane.queue_pair <= kMask24 && lane.packet_number <= kMask24 && lane.adapter < 2;
}

LaneAddress take_lane(Cursor& cursor) {
  LaneAddress lane;
  lane.queue_pair = cursor.take<uint32_t>();
  lane.packet_number = cursor.take<uint32_t>();
  lane.port.lid = cursor.take<uint16_t>();
  lane.port.link_layer = static_cast<LinkLayer>(cursor.take<uint8_t>());
  lane.port.mtu = cursor.take<uint8_t>();
  lane.adapter = cursor.take<uint8_t>();
  for (int unused = 0; unused < 3; ++unused) cursor.take<uint8_t>();
  cursor.take(lane.port.gid.data(), lane.port.gid.size());
  return lane;
}

}  // namespace

std::vector<std::byte> encode(const Handshake& handshake) {
  assert(!handshake.lanes.empty() && handshake.lanes.size() <= kLanesMax);
  assert(handshake.hello.size() <= kHelloBytesMax);
  std::vector<std::byte> bytes;
  append(bytes, kMagic);
  append(bytes, kHandshakeVersion);
  append(bytes, static_cast<uint16_t>(handshake.lanes.size()));
  append(bytes, handshake.rank);
  append(bytes, handshake.notices);
  append(bytes, static_cast<uint32_t>(handshake.hello.size()));
  for (const LaneAddress& lane : handshake.lanes) {
    append(bytes, lane.queue_pair);
    append(bytes, lane.packet_number);
    append(bytes, lane.port.lid);
    append(bytes, static_cast<uint8_t>(lane.port.link_layer));
    append(bytes, lane.port.mtu);
    append(bytes, lane.adapter);
    for (int unused = 0; unused < 3; ++unused) append(bytes, uint8_t{0});
    bytes.insert(bytes.end(), lane.port.gid.begin(), lane.port.gid.end());
  }
  bytes.insert(bytes.end(), handshake.hello.begin(), handshake.hello.end());
  return bytes;
}

const char* parse_head(const std::byte* head, Handshake& handshake, size_t& rest_bytes) {
  Cursor cursor(head);
  if (cursor.take<uint32_t>() != kMagic) return "sent bytes that are no handshake";
  if (cursor.take<uint16_t>() != kHandshakeVersion)
    return "speaks another version of the verbs protocol";
  const auto lanes = cursor.take<uint16_t>();
  handshake.rank = cursor.take<uint32_t>();
  handshake.notices = cursor.take<uint32_t>();
  const auto hello_bytes = cursor.take<uint32_t>();
  if (lanes == 0 || lanes > kLanesMax) return "offers no lane, or too many";
  if (handshake.notices == 0 || handshake.notices > kNoticesMax)
    return "offers to take no notices, or too many";
  if (hello_bytes > kHelloBytesMax) return "sent too long a hello";
  handshake.lanes.resize(lanes);
  handshake.hello.resize(hello_bytes);
  rest_bytes = lanes * kLaneAddressBytes + hello_bytes;
  return nullptr;
}

const char* parse_rest(const std::byte* rest, Handshake& handshake) {
  Cursor cursor(rest);
  for (LaneAddress& lane : handshake.lanes) {
    lane = take_lane(cursor);
    if (!is_sound(lane)) return "sent an address that makes no sense";
  }
  cursor.take(handshake.hello.data(), handshake.hello.size());
  return nullptr;
}

}  // namespace ropewalk::verbs
