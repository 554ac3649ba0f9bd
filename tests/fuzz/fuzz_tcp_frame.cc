// Feeds the receiving half of TCP streams with bytes of a hostile peer, cut anywhere.
//
// Input: the first byte chooses the number of streams, and whether hellos come first that are
// sealed as they should be; then, again and again, one byte that chooses
// the stream and the length of the cut, and the bytes of the cut. A run of the reader stores
// nothing outside the regions (the sanitizer sees that), never asks for a read of nothing, and
// gives no notice whose put is not whole.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "memory/regions.h"
#include "transports/tcp/inbox.h"
#include "transports/tcp/reader.h"

using namespace ropewalk;
using namespace ropewalk::tcp;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Hands `bytes` to the reader as a socket would. False where the reader takes no more.
bool feed(Reader& reader, const uint8_t* bytes, size_t count) {
  while (count > 0) {
    std::array<iovec, 2> places;
    const int parts = reader.prepare(places);
    if (parts == 0) return false;
    require(reader.violation() == nullptr && !reader.stalled());
    size_t given = 0;
    for (int i = 0; i < parts; ++i) {
      const iovec& place = places[static_cast<size_t>(i)];
      require(place.iov_len > 0);
      const size_t part = std::min(place.iov_len, count - given);
      std::memcpy(place.iov_base, bytes + given, part);
      given += part;
    }
    reader.consume(given);
    bytes += given;
    count -= given;
  }
  return true;
}

void greet(Reader& reader, uint32_t stream, uint32_t streams) {
  std::vector<std::byte> hello(kFrameHeaderBytes), sealed;
  encode({FrameKind::hello, kProtocolVersion, 1, stream, 0, streams, 0}, hello.data());
  SecureChannel(ConnectionKeys{}).seal(hello, sealed);
  require(feed(reader, reinterpret_cast<const uint8_t*>(sealed.data()), sealed.size()));
  require(reader.has_hello());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint32_t streams = 1 + *data % 3;
  const bool greets = *data >= 128;
  ++data, --size;
  // Heap blocks of exact size: one byte outside is seen.
  const auto near = std::make_unique<std::byte[]>(300), far = std::make_unique<std::byte[]>(70'000);
  Regions regions;
  const uint64_t near_id = regions.add({near.get(), 300, -1, 0});
  regions.add({far.get(), 70'000, -1, 0});
  Inbox inbox;
  std::vector<std::unique_ptr<SecureChannel>> channels;
  std::vector<std::unique_ptr<Reader>> readers;
  for (uint32_t i = 0; i < streams; ++i) {
    channels.push_back(std::make_unique<SecureChannel>(ConnectionKeys{}));
    readers.push_back(std::make_unique<Reader>(regions, inbox, *channels.back(),
                                               Reader::Expected{1, i, streams}));
    if (greets) greet(*readers.back(), i, streams);
  }
  bool removed = false;
  while (size > 0) {
    const uint8_t choice = *data;
    ++data, --size;
    Reader& reader = *readers[choice % streams];
    const size_t cut = std::min<size_t>(size, choice / 4 * 9 + 1);
    const bool fed = feed(reader, data, cut);
    require(fed || reader.stalled() || reader.violation() != nullptr);
    data += cut, size -= cut;
    if (choice == 255 && !removed) {
      regions.remove(near_id);
      removed = true;
    }
    for (int i = 0; i < choice % 5 && inbox.ready(); ++i) inbox.take();
    for (auto& each : readers) each->resume();
  }
  return 0;
}
