// Feeds the receiving half of TCP streams with bytes of a hostile peer, cut anywhere.
//
// Input: the first byte chooses the number of streams, whether hellos come first that are sealed as
// they should be, and whether what follows is to be sealed, too; then, again and again, one byte
// that chooses the stream and the length of the cut, and the bytes of the cut. Where they are to be
// sealed, a cut is a record, or now and then bytes in place of one. A run of the reader stores
// nothing outside the regions (the sanitizer sees that), never asks for a read of nothing, and
// gives no notice whose put is not whole.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
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

bool feed(Reader& reader, const std::vector<std::byte>& bytes) {
  return feed(reader, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

// The peer's stream and what reads it.
struct Link {
  Link(const Regions& regions, Inbox& inbox, const Reader::Expected& expected)
      : expected_(expected) {
    if (expected.sealed) opener_.emplace(Key{});
    reader_.emplace(regions, inbox, channel_, opener_ ? &*opener_ : nullptr, expected);
  }
  Reader& reader() { return *reader_; }
  void greet() {
    std::vector<std::byte> hello(kFrameHeaderBytes), sealed;
    encode({FrameKind::hello, kProtocolVersion, 1, expected_.stream, 0, expected_.streams,
            expected_.sealed ? 1u : 0u},
           hello.data());
    SecureChannel(ConnectionKeys{}).seal(hello, sealed);
    require(feed(*reader_, sealed));
    require(reader_->has_hello());
  }
  bool feed_record(const uint8_t* bytes, size_t count) {
    if (reader_->stalled() || reader_->violation() != nullptr) return false;
    std::vector<std::byte> record(count + RecordCipher::kOverheadBytes);
    cipher_.seal({reinterpret_cast<const std::byte*>(bytes), count}, record.data());
    require(feed(*reader_, record));
    return true;
  }

 private:
  Reader::Expected expected_;
  SecureChannel channel_{ConnectionKeys{}};
  RecordCipher cipher_{Key{}};
  std::optional<RecordOpener> opener_;
  std::optional<Reader> reader_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint32_t streams = 1 + *data % 3;
  const bool greets = *data >= 128, seals = greets && *data % 2 == 1;
  ++data, --size;
  // Heap blocks of exact size: one byte outside is seen.
  const auto near = std::make_unique<std::byte[]>(300), far = std::make_unique<std::byte[]>(70'000);
  Regions regions;
  const uint64_t near_id = regions.add({near.get(), 300, -1, 0});
  regions.add({far.get(), 70'000, -1, 0});
  Inbox inbox;
  std::vector<std::unique_ptr<Link>> links;
  for (uint32_t i = 0; i < streams; ++i) {
    links.push_back(std::make_unique<Link>(regions, inbox, Reader::Expected{1, i, streams, seals}));
    if (greets) links.back()->greet();
  }
  bool removed = false;
  while (size > 0) {
    const uint8_t choice = *data;
    ++data, --size;
    Link& link = *links[choice % streams];
    Reader& reader = link.reader();
    const size_t cut = std::min<size_t>(size, choice / 4 * 9 + 1);
    const bool fed = cut > 0 && seals && choice % 64 != 63 ? link.feed_record(data, cut)
                                                           : feed(reader, data, cut);
    require(fed || reader.stalled() || reader.violation() != nullptr);
    data += cut, size -= cut;
    if (choice == 255 && !removed) {
      regions.remove(near_id);
      removed = true;
    }
    for (int i = 0; i < choice % 5 && inbox.ready(); ++i) inbox.take();
    for (auto& each : links) each->reader().resume();
  }
  return 0;
}
