#include "transports/verbs/handshake.h"

#include <algorithm>
#include <cassert>

#include "transports/little_endian.h"

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

bool HandshakeReader::refuse(const char* violation) {
  violation_ = violation;
  return false;
}

bool HandshakeReader::take(std::byte byte) {
  if (violation_ != nullptr) return false;
  assert(!complete_);
  bytes_.push_back(byte);
  if (bytes_.size() < wanted_) return true;
  if (bytes_.size() == kHandshakeHeadBytes && !parse_head()) return false;
  return bytes_.size() < wanted_ || parse_rest();
}

bool HandshakeReader::parse_head() {
  Cursor cursor(bytes_.data());
  if (cursor.take<uint32_t>() != kMagic) return refuse("sent bytes that are no handshake");
  if (cursor.take<uint16_t>() != kHandshakeVersion)
    return refuse("speaks another version of the verbs protocol");
  const auto lanes = cursor.take<uint16_t>();
  handshake_.rank = cursor.take<uint32_t>();
  handshake_.notices = cursor.take<uint32_t>();
  const auto hello_bytes = cursor.take<uint32_t>();
  if (lanes == 0 || lanes > kLanesMax) return refuse("offers no lane, or too many");
  if (handshake_.notices == 0 || handshake_.notices > kNoticesMax)
    return refuse("offers to take no notices, or too many");
  if (hello_bytes > kHelloBytesMax) return refuse("sent too long a hello");
  handshake_.lanes.resize(lanes);
  handshake_.hello.resize(hello_bytes);
  wanted_ = kHandshakeHeadBytes + lanes * kLaneAddressBytes + hello_bytes;
  return true;
}

bool HandshakeReader::parse_rest() {
  Cursor cursor(bytes_.data() + kHandshakeHeadBytes);
  for (LaneAddress& lane : handshake_.lanes) {
    lane = take_lane(cursor);
    if (!is_sound(lane)) return refuse("sent an address that makes no sense");
  }
  cursor.take(handshake_.hello.data(), handshake_.hello.size());
  complete_ = true;
  return true;
}

}  // namespace ropewalk::verbs
